"""Which deployments there are, and which need not be run."""
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.tuning.candidates import candidates_of
from simulator.study.tuning.pruning import BOUND, bound_of, most_tokens_per_s, why_not
from simulator.study.tuning.search import exhaustive, feasible_of

LINEAR = ('extends = "base.toml"', 'extends = "linear.toml"')


def layouts(question):
    return Counter(each.layout for each in feasible_of(question).kept)


def test_replicas_are_as_many_as_fit(asked):
    # Of three GPUs: 3 replicas of one, or 1 of two; pools of one GPU 1 + 1, 1 + 2, 2 + 1; pools of two take four.
    question = asked()
    made = feasible_of(question)

    assert {(each.assignment["topology.tensor_parallel"], each.assignment["topology.replicas"], each.gpus)
            for each in made.kept if each.layout == "aggregated"} == {(1, 3, 3), (2, 1, 2)}
    assert [[pool["replicas"] for pool in each.assignment["pools"]] for each in made.kept
            if each.layout == "disaggregated"] == 2 * [[1, 1], [1, 2], [2, 1]]
    assert layouts(question) == {"aggregated": 4, "disaggregated": 6}
    assert [(each.kind, each.why) for each in made.dropped] == [("too_many_gpus", "4 GPUs, 3 are allowed")] * 2


def test_pools_of_unlike_sizes_and_an_axis_that_says_how_many(asked):
    question = asked(('"topology.tensor_parallel" = [1, 2]\n"engine.max_num_seqs" = [8, 64]',
                      '"pools.0.replicas" = [1]\n"pools.1.topology.tensor_parallel" = [1, 2]'))
    made = feasible_of(question)
    pairs = [(each.assignment["pools.1.topology.tensor_parallel"],
              *(pool["replicas"] for pool in each.assignment["pools"]))
             for each in made.kept if each.layout == "disaggregated"]

    assert pairs == [(1, 1, 1), (1, 1, 2), (2, 1, 1)]                # 1 x 1 + 1 x 1, + 2 x 1, + 1 x 2 GPUs
    assert layouts(question)["aggregated"] == 1                     # axes of the pools are not theirs


def test_hand_over_of_the_experiment_stays(asked):
    question = asked(('name = "small"', 'name = "small"\nkv_transfer = {protocol = "mooncake"}'))
    assert {each.experiment.kv_transfer.protocol for each in feasible_of(question).kept
            if each.layout == "disaggregated"} == {"mooncake"}


def test_forbidden_layouts_and_those_without_room_are_dropped(asked):
    question = asked(("[1, 2]", "[1, 3]"), ('name = "small"', 'name = "small"\nmodel.name = "llama-3.1-70b"'),
                     ('["aggregated", "disaggregated"]', '["aggregated"]'))
    made = feasible_of(question)

    assert not made.kept
    assert Counter(each.kind for each in made.dropped) == {"memory": 2, "forbidden": 2}
    assert "weights need 141.1 GB" in next(each.why for each in made.dropped if each.kind == "memory")
    assert "num_heads = 64 is not divisible by tensor_parallel = 3" in next(
        each.why for each in made.dropped if each.kind == "forbidden")


def test_values_that_are_wrong_by_themselves_are_refused_all_at_once(asked):
    question = asked(("[8, 64]", '[8, "many"]'), ("tensor_parallel", "tensor_paralel"))
    with pytest.raises(InputErrors) as caught:
        feasible_of(question)
    assert any("did you mean tensor_parallel?" in fault for fault in caught.value.faults)
    assert any("engine.max_num_seqs: expected" in fault for fault in caught.value.faults)


def test_equal_candidates_are_one(asked):
    question = asked(("[8, 64]", "[8, 8]"))
    assert layouts(question) == {"aggregated": 2, "disaggregated": 3}
    assert len(candidates_of(question.study, list(question.study.points())).kept) == 5


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["linear", "roofline"]), st.lists(st.integers(1, 4000), min_size=1, max_size=30),
       st.lists(st.tuples(st.integers(1, 500), st.integers(0, 2000)), max_size=3))
def test_no_batch_gives_more_tokens_than_the_bound(backend, contexts, prompts):
    overrides = {"engine.max_num_seqs": 33}
    if backend == "linear":
        overrides |= {"latency": {"backend": "linear", "base_us": 500, "per_sequence_us": 3}}
    experiment = load_experiment("configs/quickstart.toml", overrides)
    (pool,) = experiment.all_pools()
    model = latency_model(Site(pool).check())
    seconds = model.predict(prompts, contexts[:33 - len(prompts)], 1)

    assert len(prompts) + len(contexts[:33 - len(prompts)]) <= most_tokens_per_s(experiment) * seconds * (1 + 1e-12)


def test_bound_holds_for_whole_runs():
    overrides = {"engine.max_num_seqs": 16, "workload.num_requests": 100, "workload.arrival.rate_per_s": float("inf")}
    experiment = load_experiment("configs/quickstart.toml", overrides)
    reached = simulator.run(experiment).summary["output_throughput"]

    assert 0.4 * most_tokens_per_s(experiment) < reached < most_tokens_per_s(experiment)


class Recorder:
    """Tries candidates by a table of values instead of runs."""

    def __init__(self, trier):
        self._trier, self.numbers = trier, []

    def try_all(self, candidates, num_requests=None):
        candidates = list(candidates)
        self.numbers += [each.number for each in candidates]
        return self._trier.try_all(candidates, num_requests)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("goal", ["output_throughput", "output_throughput_per_gpu"])
def test_bound_drops_candidates_and_never_the_best(asked, goal):
    from simulator.study.sweep.laboratory import Laboratory
    from simulator.study.tuning.at_load import AtLoad
    from simulator.study.tuning.ranking import ranked

    question = asked(
        ('output_throughput_per_gpu = "max"\ntokens_per_s_per_user = "max"', f'{goal} = "max"'),
        ("gpus = 3", "gpus = 4"), ("[8, 64]", "[1, 2, 4, 8, 16, 32, 64]"),
        ('name = "small"', 'name = "small"\nworkload.arrival.rate_per_s = inf'))
    trier = Recorder(AtLoad(question, Laboratory(question.study), lambda tried: None))
    candidates = feasible_of(question)
    outcome = exhaustive(question, trier, candidates)
    everything = Recorder(trier).try_all(candidates.kept)

    dropped = [each for each in outcome.dropped if each.kind == BOUND]
    bound = bound_of(question)
    assert dropped and len(outcome.results) + len(dropped) == len(candidates.kept)
    assert ranked(question, outcome.results)[0][0].candidate == ranked(question, everything)[0][0].candidate
    assert all(each.values[0].mean <= bound(each.candidate) for each in everything)


def test_bound_is_asked_of_one_objective_alone(asked):
    assert bound_of(asked()) is None
    assert bound_of(asked(('output_throughput_per_gpu = "max"\n', ""))) is None
    assert bound_of(asked(('tokens_per_s_per_user = "max"', ""), ('per_gpu = "max"', 'per_gpu = "min"'))) is None
    one, seeds = ('tokens_per_s_per_user = "max"', ""), 'kind = "tune"\nseeds = 2'
    assert bound_of(asked(one)) is not None
    assert bound_of(asked(one, ('kind = "tune"', seeds))) is None               # noise may be larger than the lead
    assert bound_of(asked(one, ('kind = "tune"', f'{seeds}\nepsilon = "none"'))) is not None
    assert why_not(feasible_of(asked()).kept[0]) is None


def test_a_listed_point_has_the_layout_of_its_keys(asked):
    points = '''
[[study.points]]
"topology.tensor_parallel" = 2
"topology.replicas" = 1
[[study.points]]
"pools.0.replicas" = 1
"pools.1.replicas" = 2
[[study.points]]
"topology.tensor_parallel" = 1
'''
    question = asked(('kind = "tune"', 'kind = "tune"\ndesign = "list"'), (
        '[study.axes]\n"topology.tensor_parallel" = [1, 2]\n"engine.max_num_seqs" = [8, 64]\n', ""), add=points)
    found = candidates_of(question.study, list(question.study.points()))

    assert [(each.layout, each.gpus) for each in found.kept] == [
        ("aggregated", 2), ("disaggregated", 3), ("aggregated", 3), ("disaggregated", 2), ("disaggregated", 3),
        ("disaggregated", 3)]
