"""Faults that only several tables together show."""
import pytest

from simulator import registry
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.errors import InputErrors

BACKENDS = sorted(registry.KINDS["latency"].entries)
ALONE = {"linear": [], "blackbox": ["latency.beta=[5000.0, 20.0, 15.0]"]}      # these need no model
PRICED = ["engine.num_gpu_blocks=1000", "engine.max_model_len=8192"]


def chosen(backend):
    """Return the overrides that choose a backend, its required keys filled in."""
    required = {"aicb": ["latency.tables='.'"]}
    return [f"latency={{backend = '{backend}'}}", *required.get(backend, []), *PRICED]


@pytest.mark.parametrize("backend", sorted(set(BACKENDS) - set(ALONE)))
def test_backend_that_needs_a_model_says_so_where_there_is_none(load, faults, backend):
    assert faults(load, *chosen(backend)) == [
        f'a.toml: {table}: missing table; it is needed by latency.backend = "{backend}"'
        for table in ("model", "hardware")]


@pytest.mark.parametrize("backend", sorted(ALONE))
def test_backend_that_needs_no_model_is_built_without_one(load, backend):
    experiment = load(*chosen(backend), *ALONE[backend])
    model = latency_model(Site(experiment).check())
    assert model.predict(decode=[100]) > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_backend_says_of_its_needs_is_what_its_constructor_asks(backend):
    built = registry.load("latency", backend)
    assert (built.needs_deployment or built.takes_collective) == (backend not in ALONE)
    if backend not in ALONE:
        with pytest.raises((ValueError, TypeError)) as caught:
            built(None, None)
        assert not isinstance(caught.value, InputErrors)


def test_every_reason_for_a_missing_table_is_told(load, faults):
    text = "[latency]\nbackend = 'roofline'\n[workload]\ntype = 'trace'\npath = 't.csv'\n"
    assert faults(load, text=text) == [
        'a.toml: model: missing table; it is needed by latency.backend = "roofline" and by engine.num_gpu_blocks, '
        "which is not given and by engine.max_model_len, which is not given",
        'a.toml: hardware: missing table; it is needed by latency.backend = "roofline" and by engine.num_gpu_blocks, '
        "which is not given"]


@pytest.mark.parametrize(("pools", "expected"), [
    ("[{name = 'a', serves = 'x'}, {name = 'b', serves = 'y', replicas = 0}]",
     ["--set: pools[1].replicas: expected at least 1 here, or max_replicas, or in a pool that serves the same "
      "requests"]),
    ("[{name = 'a'}, {name = 'a'}]", ['--set: pools[1].name: two pools are named "a"']),
    ("[{name = 'a', replicas = 3, max_replicas = 2}]",
     ["--set: pools[0].max_replicas: expected at least replicas = 3, found 2"])])
def test_pools_have_names_of_their_own_and_replicas_for_what_they_serve(load, faults, pools, expected):
    assert faults(load, f"pools={pools}") == expected


def test_a_router_is_not_told_of_pools_for_one_phase(load, faults):
    routing = ("cluster.routing={policy = 'llumnix', enable_adaptive_pd = true, infer_types = [{infer_type = 'decode', "
               "selector = {metrics = ['freeness']}}]}")
    assert faults(load, routing) == [
        '--set: cluster.routing.enable_adaptive_pd: expected its default, false, found true: there is no pool '
        'with role '
        '= "prefill" or "decode", and nothing else uses it',
        '--set: cluster.routing.infer_types[0].infer_type: expected "neutral" without pools of role "prefill" or '
        '"decode", found "decode": no replica is of another type']


@pytest.mark.parametrize(("more", "expected"), [
    ("topology = {replicas = 3}\nautoscaling = {policy = 'queue', max_replicas = 2}",
     "expected at least 3, the replicas at time 0, found 2"),
    ("pools = [{name = 'a', replicas = 3}, {name = 'b', replicas = 4, max_replicas = 4}]\n"
     "autoscaling = {policy = 'queue', max_replicas = 2}", "expected at least 3, the replicas at time 0, found 2"),
    ("autoscaling = {policy = 'queue', max_replicas = 2, min_replicas = 3}",
     "expected at least min_replicas = 3, found 2")])
def test_autoscaling_has_room_for_what_there_is(load, faults, more, expected):
    assert faults(load, *more.split("\n")) == [f"--set: autoscaling.max_replicas: {expected}"]


def test_ordered_changes_heed_no_windows(load, faults):
    keys = "rates = {}, scale_up_stabilization_window_s = 1.0, shared_budget = {max_gpus = 4}"
    assert faults(load, f"autoscaling = {{policy = 'schedule', {keys}}}") == [
        f'--set: autoscaling.{key}: expected none with policy = "schedule", whose changes come at instants of their own'
        for key in ("scale_up_stabilization_window_s", "rates", "shared_budget")]


@pytest.mark.parametrize("pools", [
    "[{name = 'a'}, {name = 'b', replicas = 0}]", "[{name = 'a', replicas = 0, max_replicas = 1}]"])
def test_pool_may_begin_empty(load, pools):
    assert load(f"pools={pools}").pools


def test_pool_may_begin_empty_if_all_may_be_scaled_up(load):
    assert load("pools=[{name = 'a', replicas = 0}]", "autoscaling={policy = 'queue', max_replicas = 1}").pools


SHORTEST = "engine={scheduler = 'blis', policy = 'shortest-output', num_gpu_blocks = 9, max_model_len = 99}"
EXPECTED = "cluster.routing={policy = '%s', metric = 'expected_tokens'}"


@pytest.mark.parametrize(("reader", "key"), [
    (SHORTEST, "engine.policy"), (EXPECTED % "least_loaded", "cluster.routing.metric"),
    (EXPECTED % "power_of_two", "cluster.routing.metric")])
def test_who_goes_by_expected_lengths_needs_somebody_who_foretells_them(load, faults, reader, key):
    assert faults(load, reader) == [
        f"--set: {key}: needs predicted output lengths, which no predictor provides: give "
        "workload.output_knowledge.predictor"]
    assert load(reader, "workload.output_knowledge.predictor='exact'")


def test_predictions_that_nobody_reads_are_refused(load, faults):
    (fault,) = faults(load, "workload.output_knowledge.predictor='exact'")

    assert fault.startswith('--set: workload.output_knowledge.predictor: expected "none", found "exact": nothing in '
                            "this experiment uses predicted output lengths")


@pytest.mark.parametrize("policies", [
    "engine={scheduler = 'scheduling.lab:Fcfs', num_gpu_blocks = 9, max_model_len = 99}",
    "pools=[{name = 'a'}, {name = 'b', engine = {scheduler = 'blis', policy = 'shortest-output'}}]"])
def test_a_class_of_a_user_or_one_of_two_pools_may_read_them(load, policies):
    assert load(policies, "workload.output_knowledge.predictor='exact'")
