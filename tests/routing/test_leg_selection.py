"""Pools for prompts and pools for output by the shape of requests: a run of each rule, worked out by hand."""
import pytest

import simulator
from simulator.errors import InputErrors
from simulator.routing.leg_selection import DecodePools, LegSelection, PrefillPools
from simulator.routing.pool_selection import Tokens

PAIR = """
[engine]
num_gpu_blocks = 1000
max_model_len = 4096
async_scheduling = false
[latency]
backend = "linear"
[kv_transfer]
kv_bytes_per_token = 1e3
bandwidth_gb_per_s = 1.0
[workload]
type = "trace"
path = "requests.csv"
[[pools]]
name = "p0"
role = "prefill"
replicas = 2
[[pools]]
name = "p1"
role = "prefill"
[[pools]]
name = "d0"
role = "decode"
[[pools]]
name = "d1"
role = "decode"
replicas = 2
[[slo.classes]]
name = "fast"
ttft_ms = 50.0
tpot_ms = 5.0
[[slo.classes]]
name = "slow"
ttft_ms = 900.0
tpot_ms = 90.0
"""
HALVES = {"max_tokens": 2000, "cells": 2}
PREFILL = {"isl": HALVES, "table": [["p0"], ["p1"]]}
DECODE = {"itl_ms": {"max_ms": 100.0, "cells": 2}, "table": [["d0", "d1"]]}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs requests (prompt tokens, class, priority), one each 10 ms."""
    (tmp_path / "pair.toml").write_text(PAIR)

    def run(rows, selection, **settings):
        (tmp_path / "requests.csv").write_text(
            "arrived_at,num_prefill_tokens,num_decode_tokens,slo_class,priority\n"
            + "".join(f"{i / 100},{tokens},5,{name},{priority}\n" for i, (tokens, name, priority) in enumerate(rows)))
        settings = {key.replace("__", "."): value for key, value in settings.items()}
        return simulator.run(tmp_path / "pair.toml", settings | {"cluster.leg_selection": selection})
    return run


def pools(results):
    """Return for each request its prefill and its decode replica: p0 has 0 and 1, p1 2, d0 3, d1 4 and 5."""
    found = results.columns("requests", ["prefill_replica", "replica"])
    return list(zip(found["prefill_replica"].tolist(), found["replica"].tolist(), strict=True))


ROWS = [(999, "fast", 0), (1000, "slow", 0), (10, "slow", 0), (10, "", 0), (2500, "fast", 0), (20, "fast", 0)]


def test_each_leg_goes_to_the_pool_of_its_cell(run):
    # Without a bound the middle, 50 ms, is in the second half. Within p0 and d1 the replicas take turns.
    found = pools(run(ROWS, {"prefill": PREFILL, "decode": DECODE}))
    assert found == [(0, 3), (2, 4), (1, 5), (0, 4), (2, 3), (1, 3)]


def test_a_leg_without_a_selection_has_one_router(run):
    assert [decode for _, decode in pools(run(ROWS, {"prefill": PREFILL}))] == [3, 4, 5, 3, 4, 5]
    assert [prefill for prefill, _ in pools(run(ROWS, {"decode": DECODE}))] == [0, 1, 2, 0, 1, 2]


def test_priorities_override_the_cell_of_either_leg(run):
    override = {"overrides": [{"min_priority": 5, "max_priority": 9, "pool": "p1"}]}
    found = pools(run([(10, "fast", 4), (10, "fast", 5)], {
        "prefill": PREFILL | override, "decode": DECODE | {"overrides": [override["overrides"][0] | {"pool": "d1"}]}}))
    assert found == [(0, 3), (2, 4)]


def test_ranks_are_of_the_pool_that_is_selected(run):
    # Each replica is a group of two ranks: p1 is replicas 4 and 5, d0 6 and 7.
    results = run([(1500, "fast", 0)] * 2, {"prefill": PREFILL, "decode": DECODE}, topology__data_parallel=2)
    assert [(prefill // 2, decode // 2) for prefill, decode in pools(results)] == [(2, 3)] * 2


def test_a_prompt_without_a_replica_is_computed_by_the_other_pool(run):
    results = run(ROWS[:2], {"prefill": PREFILL}, failures=[
        {"kind": "stop", "target": "pool", "pool": "p1", "at_s": 0.001, "duration_s": 9.0}])
    assert pools(results) == [(0, 3), (-1, 4)]


def test_names_and_tables_that_do_not_fit_are_refused(run):
    with pytest.raises(InputErrors, match='there is no pool "p2"') as caught:
        run(ROWS, {"prefill": PREFILL | {"table": [["p0"], ["p2"]]}, "decode": DECODE | {"table": [["d0", "p0"]]}})
    assert 'expected pools with role = "decode", found "p0" with role = "prefill"' in str(caught.value)
    with pytest.raises(ValueError, match="expected 2 rows of 1 names"):
        PrefillPools(isl=Tokens(max_tokens=10, cells=2), table=(("a",),))
    with pytest.raises(ValueError, match="expected 2 rows of 1 names"):
        DecodePools(context=Tokens(max_tokens=10, cells=2), table=(("a",),))
    with pytest.raises(ValueError, match="give prefill, decode or both"):
        LegSelection()
