"""The facts of a pool are worked out once: counted calls of an experiment's preparation."""
from collections import Counter
from functools import wraps
from pathlib import Path

import pytest

import simulator
from simulator import registry
from simulator.assembly import assemble, drafts, site
from simulator.config.load import load_experiment
from simulator.domain import memory_plan
from simulator.results.memory import NO_SINK

CONFIGS = Path(__file__).parents[1] / "configs"
FACTS = [(site, "model_of"), (site, "needs_lock_step"), (site, "load_accelerator"), (site, "load_node_with"),
         (site, "draft_deployment"), (site, "plan_groups"), (memory_plan, "plan_groups"), (site, "plan_within"),
         (drafts, "model_of")]
MANY_FACTS = ["prefill_decode", "encode_pool", "migration", "prefill_decode_tiers", "deepseek_dp8", "draft_model",
              "long_prompts"]


@pytest.fixture
def calls(monkeypatch):
    """Return the number of calls by function, and of loaded classes by kind."""
    counted = Counter()

    def count(place, name, key_of):
        work = getattr(place, name)

        @wraps(work)
        def counting(*given, **named):
            counted[key_of(*given)] += 1
            return work(*given, **named)
        monkeypatch.setattr(place, name, counting)

    for place, name in FACTS:
        key = f"{place.__name__.rpartition('.')[2]}.{name}"
        count(place, name, lambda *_, key=key: key)
    count(registry, "load", lambda kind, *_: kind)
    return counted


@pytest.mark.parametrize("name", MANY_FACTS)
def test_each_fact_of_a_pool_is_worked_out_once(name, calls):
    experiment = load_experiment(CONFIGS / f"{name}.toml", {"workload.num_requests": 2})
    calls.clear()
    assemble.build(assemble.prepare(experiment), NO_SINK)

    pools, encode = len(experiment.all_pools()), len(experiment.encode_pools())
    of_pools = {name: count for name, count in calls.items() if "." in name}
    assert of_pools.pop("site.model_of") <= pools + encode
    assert of_pools.pop("site.needs_lock_step") <= pools + encode
    assert of_pools.pop("site.plan_groups") + of_pools.pop("memory_plan.plan_groups", 0) <= pools
    assert of_pools and max(of_pools.values()) <= pools
    assert calls["scheduler"] <= pools + encode and calls["latency"] <= pools


def test_replications_share_the_facts_of_their_pools(calls):
    replications = {"latency.uncertainty": True, "latency.uncertainty_replications": 4, "workload.num_requests": 2}
    simulator.run(CONFIGS / "quickstart.toml", replications, threads=1)

    assert 1 <= calls["site.plan_within"] <= 2         # of the run, and of all its replications
    assert calls["site.model_of"] <= 2


def test_an_open_ended_load_counts_its_requests_with_the_same_facts(calls):
    simulator.run(CONFIGS / "closed_loop.toml", {"workload.duration_s": 12.0})

    assert calls["site.plan_within"] == calls["site.model_of"] == 1
