"""Dynamo's global router: the pool of each call for the three grids, and the order of retries, as recorded."""
import json

import numpy as np
import pytest

from simulator.routing.pool_selection import Bounds, Override, PoolSelection, Tokens, retry_order
from support import goldens

FOLDER = goldens.GOLDENS / "cluster_2026"
PATHS = sorted(FOLDER.glob("dynamo_global_router*.jsonl"))
pytestmark = pytest.mark.skipif(not PATHS, reason=f"no recorded calls dynamo_global_router under {FOLDER}")


def cases():
    return [json.loads(line) for path in PATHS for line in path.read_text().splitlines() if line.strip()]


def axis(given, name, kind):
    if f"{name}_resolution" not in given:
        return None
    unit, suffix = ("tokens", "") if kind is Tokens else ("ms", "_ms")
    low, high = (given[f"{name}_{end}{suffix}"] for end in ("min", "max"))
    return kind(**{f"min_{unit}": low, f"max_{unit}": high}, cells=given[f"{name}_resolution"])


def named(table):
    return tuple(tuple(str(pool) for pool in np.ravel(row)) for row in table)


def selections(case):
    """Return the selection of each kind of pools."""
    overrides = tuple(Override(min_priority=each["min_priority"], max_priority=each["max_priority"],
                               pool=str(each["target_pool"])) for each in case["overrides"])
    of_prefill, of_decode, whole = case["prefill"], case["decode"], case["agg"]
    mapping = whole["agg_pool_mapping"]
    return {
        "prefill": PoolSelection(isl=axis(of_prefill, "isl", Tokens), ttft_ms=axis(of_prefill, "ttft", Bounds),
                                 table=named(of_prefill["prefill_pool_mapping"]), overrides=overrides),
        "decode": PoolSelection(isl=axis(of_decode, "context_length", Tokens), itl_ms=axis(of_decode, "itl", Bounds),
                                table=named(of_decode["decode_pool_mapping"]), overrides=overrides),
        "agg": PoolSelection(isl=axis(whole, "isl", Tokens), ttft_ms=axis(whole, "ttft", Bounds),
                             itl_ms=axis(whole, "itl", Bounds), overrides=overrides,
                             table=named(mapping if "isl_resolution" in whole else [mapping]))}


def test_pools_are_selected_as_they_were():
    for case in cases():
        calls = {key: np.array([np.nan if call[key] is None else call[key] for call in case["calls"]], float)
                 for key in ("isl", "ttft_ms", "itl_ms", "priority")}
        for kind, selection in selections(case).items():
            chosen = [int(selection.names[pool]) for pool in selection.select(**calls)]
            assert chosen == [call[kind] for call in case["calls"]], (case["seed"], kind)


def test_retries_go_where_they_went():
    for case in cases():
        for call in case["calls"]:
            assert retry_order(case["pool_priorities"], call["retry_from"]) == call["retry_order"], case["seed"]
