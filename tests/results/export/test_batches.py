"""Requests that are said to have been in a batch were in it, whatever the run did to them."""
from collections import defaultdict

import pytest

from results.export.runs import PREEMPTED, busy_run, events, export

POOLS = [{"name": role, "role": role} for role in ("prefill", "decode")]
MOVES = {"policy": "rebalance", "interval_s": 0.05, "kv_bytes_per_token": 1e3, "bandwidth_gb_per_s": 1.0}
RUNS = {
    "plain": {},
    "not_async": {"engine.async_scheduling": False},
    "preempted": PREEMPTED,
    "stages": {"topology.pipeline_parallel": 2},
    "handed_over": {"pools": POOLS, "kv_transfer.protocol": "nixl"},
    "ranks": {"topology.data_parallel": 2},
    "moved": {"cluster.rescheduling": MOVES, "engine.num_gpu_blocks": 300},
    "failures": {"failures": [{"kind": "stop", "at_s": 2.0, "duration_s": 1.0}]},
}


@pytest.mark.parametrize("name", RUNS)
def test_requests_of_a_batch_are_those_that_it_gave_tokens(name, tmp_path):
    result = busy_run(tmp_path, RUNS[name])
    offsets, times_ns = result.token_times
    told = defaultdict(set)         # end of a batch in ns -> requests to which it gave a token
    for row, request in enumerate(result.requests["request_id"].tolist()):
        for time_ns in times_ns[offsets[row]:offsets[row + 1]].tolist():
            told[time_ns].add(request)

    named = [event for event in events(export(tmp_path / "out", "vidur", "--quiet"))
             if event["args"]["request_ids"] is not None]

    assert bool(named) == (name != "stages")
    for event in named:
        args = event["args"]
        assert len(args["request_ids"]) == args["batch_size"]
        if args["num_tokens"] is not None and set(args["num_tokens"]) == {1}:    # a batch in which all decode
            assert set(args["request_ids"]) <= told[round((event["ts"] + event["dur"]) * 1e3)]
