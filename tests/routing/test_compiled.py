"""Routers and scorers that users compile, and policies that look into caches."""
import importlib
from pathlib import Path

import pytest

import simulator
from routing.faces import context_of, router_of, scorer_of, tell, view_of, workload
from simulator import registry
from simulator.errors import InputErrors
from simulator.routing.policies.weighted import Weighted

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def example(compiled):
    return importlib.import_module("first_with_room")


def test_the_documented_router_is_found_built_and_asked(example):
    kind = registry.load("router", "first_with_room:FirstWithRoom")
    view = view_of(3, in_flight=[2, 1, 0])

    router = kind(kind.Parameters(max_in_flight=2), context_of(view, workload([10])))

    assert router.choose_replica(0, 0) == 1
    tell(view, in_flight=2)
    assert router.choose_replica(0, 0) == -1


def test_the_documented_scorer_is_found_built_and_asked(example):
    kind = registry.load("scorer", "first_with_room:FewPreemptions")
    view = view_of(3, preemptions=[1, 0, 3])

    router = Weighted(Weighted.Parameters(), context_of(view, workload([10]), [(kind, 1.0, None)]))

    assert router.scores(0, 0).tolist() == [0.5, 1, 0.25]


@pytest.mark.parametrize("policy", [
    'policy = "first_with_room:FirstWithRoom"\nmax_in_flight = 64',
    'policy = "weighted"\nscorers = [{name = "first_with_room:FewPreemptions", weight = 1.0}]'])
def test_the_documented_classes_run_in_an_experiment(policy, example, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(f'extends = "{CONFIGS / "routing.toml"}"\n[cluster.routing]\n{policy}\n')

    result = simulator.run(file, {"workload.num_requests": 200})

    assert result.summary["requests"]["completed"] == 200
    # 200 requests at a time fill four replicas, and the others sleep; without preemptions all are equally good.
    assert set(result.requests["replica"].tolist()) == set(range(4 if "First" in policy else 8))


def test_precise_prefix_cache_ranks_between_the_least_and_the_most(filled_view):
    # blocks 2, 10, 4: 0, 1 and (4 - 2) / 8; without replica 1: 0 and 1
    view = filled_view(3, {(0, 0): 2, (1, 0): 10, (2, 0): 4, (0, 1): 3, (1, 1): 3, (2, 1): 3})
    scorer = scorer_of("precise-prefix-cache", view)

    assert scorer.scores(0, 0).tolist() == [0, 1, 0.25]
    assert scorer.scores(1, 0).tolist() == [1, 1, 1]
    tell(view, is_routable=[1, 0, 1])
    assert scorer.scores(0, 0).tolist() == pytest.approx([0, float("nan"), 1], nan_ok=True)


def test_caches_that_hold_the_same_score_one_in_both_versions(filled_view):
    view = filled_view(2, {(0, 0): 3, (1, 0): 3})

    assert scorer_of("precise-prefix-cache", view, if_equal="half_if_none").scores(0, 0).tolist() == [1, 1]


def test_a_warm_request_is_left_to_others_and_changes_no_order(filled_view):
    scorer = scorer_of("no-hit-lru", filled_view(3, {(1, 0): 1}))

    assert scorer.scores(0, 0).tolist() == [0.5, 0.5, 0.5]
    scorer.note_sent(0, 0, 0)

    assert scorer.scores(1, 0).tolist() == [1, 0.5, 0]


@pytest.mark.parametrize(("missing", "expected"), [(0, {0}), (2000, {0}), (2016, {1, 2})])
def test_kvaware_takes_the_longest_match_if_nearly_all_is_there(filled_view, missing, expected):
    # 5008 tokens are 313 blocks; without a match nothing was sent to 1 and 2 yet
    view = filled_view(3, {(0, 0): (5008 - missing) // 16, (1, 0): 1})
    router = router_of("kvaware", view, workload([5008]))
    router.note_sent(0, 0, 0)

    assert {router.choose_replica(0, 0) for _ in range(40)} == expected


def test_dynamo_goes_by_what_caches_say(filled_view):
    # 160 tokens: 10 blocks; 10 - 10 + 10 - 10 + 12 held; 10 + 10 + 0 held
    view = filled_view(2, {(0, 0): 10})
    tell(view, used_blocks=[12, 0])
    router = router_of("dynamo", view, workload([160]), load="replicas")

    assert router.scores(0, 0).tolist() == [-12, -20]


def test_compiled_class_whose_method_is_misspelt_is_refused():
    with pytest.raises(InputErrors) as caught:
        registry.load("router", "support.filled_view:Misspelt")
    assert str(caught.value) == (
        '"support.filled_view:Misspelt" is no router: it overrides no `cdef route` of Router: '
        "as it is spelt there, and typed")
