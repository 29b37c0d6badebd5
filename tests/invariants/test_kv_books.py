"""Block tables and counts of blocks lead to the same run wherever prefixes are cached and blocks run out."""
import numpy as np
import pytest

from simulator.engine.build import build
from simulator.engine.plan import Hooks
from simulator.kv.counting import CountingKV
from simulator.kv.paged import PagedKV
from simulator.kv.sparse import SparseKV
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support import engine
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload


def crowded(description, num_blocks=None):
    """Return a scenario in which prefixes are cached, and blocks run out where they are that few."""
    options = description["options"] | {"enable_prefix_caching": True}
    options["num_blocks"] = min(options["num_blocks"], num_blocks or options["num_blocks"])
    return load(description | {"options": options})


def assert_same_run(scenario, replicas=1):
    """Return the preemptions of a run that is the same with block tables and without."""
    counts, tables = (engine.run(scenario, replicas=replicas, details=False, tracks_identity=tracks)
                      for tracks in (None, True))
    for name in ("requests", "iterations", "replicas"):
        one, other = getattr(counts, name), getattr(tables, name)
        for field in one.dtype.names:
            if field != "spare":
                np.testing.assert_array_equal(one[field], other[field], err_msg=f"{name}.{field}")
    assert counts.token_times == tables.token_times
    return int(counts.requests["preemptions"].sum())


def test_small_scenarios_are_the_same_run():
    preemptions = [assert_same_run(crowded(random_description(seed, beyond_vllm=True))) for seed in range(9000, 9300)]

    assert sum(preemptions) > 75       # blocks ran out, and requests came back for what they had left


@pytest.mark.parametrize("seed", range(300, 330))
def test_long_traffic_is_the_same_run(seed):
    description, replicas = random_traffic(seed)
    assert_same_run(crowded(description, 1 + 1100 // description["options"]["block_size"]), replicas)


@pytest.mark.parametrize("seed", range(330, 350))
def test_long_traffic_that_shares_nothing_is_the_same_run(seed):
    description, replicas = random_traffic(seed)
    for request in description["requests"]:
        request["prompt"] = [["uniq", request["prompt"][-1][-1]]]
    assert_same_run(crowded(description, 1 + 1100 // description["options"]["block_size"]), replicas)


@pytest.mark.parametrize(("num_blocks", "options", "kind"), [
    (100, {}, CountingKV),                              # two texts of 40 blocks fit: nothing is ever left behind
    (60, {}, SparseKV),                                 # they do not
    (60, {"enable_prefix_caching": False}, CountingKV),
    (60, {"tracks_identity": True}, PagedKV),           # somebody looks at tables
    (100, {"moves_requests": True}, SparseKV)])         # what moves holds blocks besides
def test_blocks_have_tables_only_where_somebody_looks_at_them(num_blocks, options, kind):
    workload = plain_workload(np.zeros(2), [600, 600], 16)      # 616 tokens of 16 in a block
    plan = engine.plan_of(VllmParameters(), Linear(LinearParameters()), num_gpu_blocks=num_blocks + 1, block_size=16,
                          max_model_len=1000, **options)

    assert isinstance(build(workload, plan, Hooks()).fleet.replicas[0].scheduler.kv, kind)
