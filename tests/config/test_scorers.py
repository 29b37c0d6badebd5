"""Scorers: beside which routers they act, and what a profile stands for."""
import pytest
import tomli

from simulator import registry
from simulator.config.load import load_experiment, resolved_toml
from simulator.errors import InputErrors
from simulator.routing.policies import weighted

EXPERIMENT = """
engine = {num_gpu_blocks = 500, max_model_len = 4096}
latency = {backend = "linear"}
topology = {replicas = 2}
workload = {type = "trace", path = "trace.csv"}
"""
SCORERS = 'scorers = [{name = "queue-depth", weight = 1.0}]'


@pytest.fixture
def load(tmp_path):
    """Return a function that loads an experiment with some more text, and overrides."""
    def load(text, **overrides):
        (tmp_path / "e.toml").write_text(EXPERIMENT + text)
        return load_experiment(tmp_path / "e.toml", {key.replace("__", "."): value for key, value in overrides.items()})

    return load


@pytest.mark.parametrize("policy", ["round_robin", "least_loaded", "llumnix", "cache_aware", "dynamo"])
def test_scorers_beside_a_router_that_adds_up_none_are_refused(load, policy):
    with pytest.raises(InputErrors, match=f'expected none with cluster.routing.policy = "{policy}": "weighted"'):
        load(f'cluster.routing = {{policy = "{policy}", {SCORERS}}}')


def test_so_are_those_of_a_leg(load):
    pools = '[[pools]]\nname = "p"\nrole = "prefill"\n[[pools]]\nname = "d"\nrole = "decode"\n'
    with pytest.raises(InputErrors, match=r"cluster\.disaggregation\.decode\.scorers: expected none"):
        load(f'cluster.disaggregation.decode = {{policy = "random", {SCORERS}}}\n{pools}')


def test_a_later_layer_that_chooses_another_router_forgets_them(load):
    found = load(f'cluster.routing = {{policy = "weighted", {SCORERS}}}', cluster__routing__policy="random")

    assert found.cluster.routing.scorers == ()


def test_what_a_class_of_a_users_own_does_with_them_is_not_known(load, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from simulator.routing.python_router import PythonRouter\nclass Mine(PythonRouter):\n"
        "    def choose(self, *_):\n        return 0\n")
    assert len(load(f'cluster.routing = {{policy = "mine:Mine", {SCORERS}}}').cluster.routing.scorers) == 1


@pytest.mark.parametrize(("profile", "scorers"), [
    ("blis", [("precise-prefix-cache", 2.0), ("queue-depth", 1.0), ("kv-utilization", 1.0)]),
    ("blis-0.7.1", [("prefix-affinity", 3.0), ("queue-depth", 2.0), ("kv-utilization", 2.0)]),
    ("llm-d", [("queue-depth", 2.0), ("kv-utilization", 2.0), ("prefix-affinity", 3.0)]),
    ("llm-d-router", [("queue-depth", 2.0), ("kv-utilization", 2.0), ("prefix-affinity", 3.0)])])
def test_the_resolved_experiment_lists_the_scorers_of_a_profile(load, tmp_path, profile, scorers):
    experiment = load(f'cluster.routing = {{policy = "weighted", profile = "{profile}"}}')
    told = tomli.loads(resolved_toml(experiment))["cluster"]["routing"]["scorers"]

    assert [(each["name"], each["weight"]) for each in told] == scorers
    (tmp_path / "again.toml").write_text(resolved_toml(experiment))
    assert load_experiment(tmp_path / "again.toml") == experiment


def test_names_of_profiles_are_those_of_the_registry():
    for profile in ("blis", "blis-0.7.1", "llm-d", "llm-d-router"):
        usual = weighted.Weighted.usual_scorers(weighted.WeightedParameters(profile=profile))
        assert all(registry.load("scorer", name).Parameters(**keys) for name, _, keys in usual)


def test_like_is_resolved_into_the_defaults_of_a_gateway(load, tmp_path):
    experiment = load('cluster.routing = {like = "llm-d-default"}')
    table = tomli.loads(resolved_toml(experiment))["cluster"]["routing"]

    assert (table["policy"], table["snapshot_refresh_interval_s"], "like" in table) == ("weighted", 0.05, False)
    assert [(each["name"], each["weight"], each.get("block_tokens")) for each in table["scorers"]] == [
        ("queue-depth", 2.0, None), ("kv-utilization", 2.0, None), ("prefix-affinity", 3.0, 64)]
    (tmp_path / "again.toml").write_text(resolved_toml(experiment))
    assert load_experiment(tmp_path / "again.toml") == experiment


def test_keys_beside_like_win_unless_they_choose_another_router(load):
    routing = load('cluster.routing = {like = "llm-d-default", snapshot_refresh_interval_s = 0.2, scorers = ['
                   '{name = "queue-depth", weight = 1.0}]}').cluster.routing
    assert (routing.snapshot_refresh_interval_s, len(routing.scorers)) == (0.2, 1)

    with pytest.raises(InputErrors, match=r'cluster\.routing\.policy: expected none or "weighted" with like = '
                                          '"llm-d-default", found "random"'):
        load('cluster.routing = {like = "llm-d-default", policy = "random"}')
    with pytest.raises(InputErrors, match=r'cluster\.routing\.like: expected "llm-d-default", found "llm-d"'):
        load('cluster.routing = {like = "llm-d"}')


FILTERS = 'filters = [{name = "session-affinity"}]'


@pytest.mark.parametrize("policy", ["round_robin", "dynamo"])
def test_filters_beside_a_router_without_filters_are_refused(load, policy):
    with pytest.raises(InputErrors, match=f'expected none with cluster.routing.policy = "{policy}": "weighted"'):
        load(f'cluster.routing = {{policy = "{policy}", {FILTERS}}}')


@pytest.mark.parametrize(("pools", "message"), [
    ("", r'filters\[0\]\.pools: expected none without \[\[pools\]\], found "smal"'),
    ('[[pools]]\nname = "small"\n', r'expected names of \[\[pools\]\], found "smal"; did you mean small\?')])
def test_a_selector_of_pools_that_are_not_there_is_refused(load, pools, message):
    with pytest.raises(InputErrors, match=message):
        load('cluster.routing = {policy = "weighted", filters = [{name = "label-selector", pools = ["smal"]}]}\n'
             + pools)


def test_the_range_of_a_pool_takes_the_scorer_that_reads_it(load):
    pools = '[[pools]]\nname = "small"\ncontext_range = [0, 2048]\n'
    with pytest.raises(InputErrors, match='context_range: expected none without the scorer "context-length"'):
        load(f'cluster.routing = {{policy = "weighted", {SCORERS}}}\n{pools}')
    with pytest.raises(InputErrors, match=r"context_range = \[5, 1\]: give \[least, most\]"):
        load(f'cluster.routing = {{policy = "weighted", {SCORERS}}}\n{pools.replace("0, 2048", "5, 1")}')
