"""Pools by the shape of requests: cells, overrides, requests that are too long, and a run."""
import math

import numpy as np
import pytest
import tomli_w

import simulator
from simulator.errors import InputErrors
from simulator.routing.pool_selection import Bounds, Override, PoolSelection, Tokens, retry_order

QUARTERS = PoolSelection(isl=Tokens(max_tokens=8000, cells=4), table=(("a",), ("b",), ("c",), ("d",)))


def selected(chosen, isl=(0,), ttft_ms=None, itl_ms=None, priority=None):
    def values(given):
        return np.full(len(isl), math.nan) if given is None else np.array(given, float)

    indices = chosen.select(np.array(isl, float), values(ttft_ms), values(itl_ms), values(priority))
    return "".join(chosen.names[i] for i in indices)


def test_lengths_lie_in_equal_cells():
    # 1,500 of 0 to 8,000 in 4 cells: the first; 9,000: the last.
    assert selected(QUARTERS, isl=(0, 1500, 1999, 2000, 7999, 8000, 9000)) == "aaabddd"


def test_a_request_without_a_bound_is_in_the_middle():
    chosen = PoolSelection(ttft_ms=Bounds(max_ms=300.0, cells=3), table=(("a", "b", "c"),))
    assert selected(chosen, isl=(0, 0, 0), ttft_ms=(50, math.nan, 250)) == "abc"


def test_columns_are_bounds_on_tokens_within_bounds_on_the_first():
    bounds = Bounds(max_ms=100.0, cells=2)
    chosen = PoolSelection(ttft_ms=bounds, itl_ms=bounds, table=(("a", "b", "c", "d"),))
    assert selected(chosen, isl=(0,) * 4, ttft_ms=(0, 0, 99, 99), itl_ms=(0, 99, 0, 99)) == "abcd"


def test_the_first_override_that_holds_the_priority_is_taken():
    chosen = PoolSelection(table=(("a",),), overrides=(Override(min_priority=2, max_priority=5, pool="b"),
                                                       Override(min_priority=5, max_priority=9, pool="c")))
    assert selected(chosen, isl=(0,) * 4, priority=(1, 5, 6, math.nan)) == "abca"
    assert chosen.overlaps() == [
        "cluster.pool_selection.overrides[1]: priorities 5 to 5 are in overrides[0], too, which comes first"]


def test_retries_go_to_faster_pools_the_slowest_first():
    assert retry_order([0, 1, 2, 1], 2) == [2, 1, 3, 0]
    assert retry_order([0, 1, 2, 1], 1) == [1, 0]


def test_requests_that_are_too_long_go_to_a_faster_pool_that_takes_them():
    chosen = PoolSelection(table=(("slow",),), too_long=("fast", "middle", "slow"))
    limits = {"slow": 100, "middle": 200, "fast": 400}
    moved = chosen.moved(np.zeros(4, int), np.array([100, 150, 300, 500]), [limits[name] for name in chosen.names])

    assert [chosen.names[i] for i in moved] == ["slow", "middle", "fast", "slow"]       # no pool takes 500


@pytest.mark.parametrize(("make", "message"), [
    (lambda: PoolSelection(isl=Tokens(max_tokens=9, cells=2), table=(("a",),)), "table: expected 2 rows of 1 names"),
    (lambda: Tokens(min_tokens=9, max_tokens=9, cells=2), "max_tokens: expected more than min_tokens = 9, found 9"),
    (lambda: Bounds(min_ms=9.0, max_ms=8.0, cells=2), "max_ms: expected more than min_ms = 9, found 8"),
    (lambda: Override(min_priority=2, max_priority=1, pool="a"), "max_priority: expected at least min_priority = 2")])
def test_ranges_that_hold_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


EXPERIMENT = {
    "pools": [{"name": "short", "replicas": 1}, {"name": "long", "replicas": 2}],
    "cluster": {"pool_selection": {"isl": {"max_tokens": 200, "cells": 2}, "table": [["short"], ["long"]]}},
    "engine": {"num_gpu_blocks": 600, "max_model_len": 512}, "latency": {"backend": "linear"},
    "workload": {"type": "synthetic", "num_requests": 40, "arrival": {"process": "constant", "rate_per_s": 20.0},
                 "prompt_tokens": {"distribution": "uniform", "min": 10, "max": 190},
                 "output_tokens": {"distribution": "constant", "tokens": 4}}}


def run(folder, experiment):
    """Run an experiment that is written to a folder."""
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps(experiment))
    return simulator.run(path)


def test_each_request_is_served_by_the_pool_of_its_cell(tmp_path):
    requests = run(tmp_path, EXPERIMENT).requests

    assert ((requests["prompt_tokens"] >= 100) == (requests["replica"] >= 1)).all()
    assert set(requests["replica"]) == {0, 1, 2}        # the router of a pool has both replicas


def test_a_table_names_pools_that_are_there(tmp_path):
    wrong = EXPERIMENT | {"cluster": {"pool_selection": {"table": [["lon"]]}}}
    with pytest.raises(InputErrors, match=r'cluster\.pool_selection: there is no pool "lon"; did you mean long\?'):
        run(tmp_path, wrong)
