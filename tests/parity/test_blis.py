"""Recorded runs of BLIS, repeated through the experiment file under `scheduler = "blis"`: equal to the microsecond.

A case is skipped where a flag of its command has no counterpart (support/blis_experiment.py) or `LEFT_OUT` lists it.
Compared are, of every request that was let in, TTFT, E2E latency, mean gap between tokens, first
scheduling, preemptions, instance and when its last token left the engine, and the aggregate of the run.
"""
from fnmatch import fnmatch

import pytest
import tomli_w

import simulator
from support import blis
from support.blis_experiment import experiment_of, missing_flags
from support.blis_results import Results, differences, expected_aggregate, expected_requests

LEFT_OUT = {    # a pattern of names: why these cannot agree
    "13*_kv_offload_*": "KV blocks in tiers, as the header of the trace says",
    "18_*": "closed-loop sessions: a turn arrives when the one before it is complete",
    "32_v071_04_*": "v0.7.1 hangs under KV pressure: its horizon ends a livelock",
    "32_v071_05_*": "v0.7.1 holds back batch and background requests while the cluster is busy",
    "32_v071_10_*": "v0.7.1 holds back batch and background requests while the cluster is busy",
}
ROUNDED_US = 1e-6               # results are floats of whole microseconds, means of them have six decimals
ROUNDED_MS = 1e-9               # sums in another order

ALL = blis.cases()
ALWAYS_COMPARED = {
    "01_basic_single", "02_burst_fcfs_limits", "03_chunked_prefill", "05_preempt_priority_policy",
    "05c_reverse_priority", "06_prefix_cache", "07_max_model_len", "07b_kv_capacity_drop", "08_zero_output_timeout",
    "10_route_always-busiest_s0", "10_route_always-busiest_s50", "10_route_round-robin_s0", "10_route_round-robin_s50",
    "16_roofline_llama8b_h100", "16c_roofline_mixtral",
    "17_trained_physics_llama8b", "17c_trained_physics_scout_fp8", "18b_sessions_fixed", "31_bb_01_basic",
    "31_bb_02_burst", "31_bb_05_slo_based", "31_bb_06_prefix", "31_bb_07_maxlen", "31_bb_10_round-robin",
    "32_v071_01_basic", "32_v071_02_burst", "32_v071_03_chunked", "32_v071_06_prefix", "32_v071_07_maxlen",
    "34_v071_std_round-robin"}

pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs under {blis.FOLDER}")


def run(case, folder):
    """Return the case as BLIS would report our run of it."""
    experiment = experiment_of(case)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(experiment), encoding="utf-8")
    host = experiment["latency"]["host"]
    return Results(simulator.run(file), int(host.get("output_token_us", 0)), int(host.get("completion_us", 0)))


def obstacle(case):
    """Return why a case is not run; None if it is."""
    missing = missing_flags(case)
    if missing:
        return f"no counterpart yet: {', '.join(missing)}"
    return next((reason for pattern, reason in LEFT_OUT.items() if fnmatch(case.name, pattern)), None)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_request_and_the_aggregate_are_what_blis_recorded(case, tmp_path):
    if obstacle(case):
        pytest.skip(obstacle(case))
    results = run(case, tmp_path)
    requests, aggregate = results.requests(), results.aggregate()

    assert requests.keys() == case.results.keys()
    found = [(name, *each) for name, expected in expected_requests(case).items()
             for each in differences(requests[name], expected, ROUNDED_US)]
    found += [("aggregate", *each) for each in differences(aggregate, expected_aggregate(case), ROUNDED_MS)]
    assert not found, "\n".join([f"{len(found)} differences: of, what, recorded, ours", *map(str, found[:20])])


def test_cases_are_left_out_for_a_reason_only():
    assert not [case.name for case in ALL if case.name in ALWAYS_COMPARED and obstacle(case)]
