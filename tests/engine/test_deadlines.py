"""Clients whose answer is late give up, or wait on; every iteration lasts 1 ms, one request runs at a time."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors
from support.every_key import read

MS = 1_000_000
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,1,4,0.0025\n0,1,2,0.010\n0,1,1,0.0045\n0,1,1,\n"


@pytest.fixture
def run(tmp_path):
    """Serve requests of 4, 2, 1 and 1 tokens, due after 2.5, 10, 4.5 ms and never."""
    (tmp_path / "trace.csv").write_text(TRACE)

    def run(load=None, **keys):
        return simulator.run(read({
            "engine": {"num_gpu_blocks": 100, "max_model_len": 100, "max_num_seqs": 1, "async_scheduling": False},
            "latency": {"backend": "linear", "base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                        "per_context_token_us": 0.0},
            "workload": {"type": "trace", "path": str(tmp_path / "trace.csv"), "load": load or {}, **keys}}))
    return run


def test_who_gives_up_makes_room(run):
    # r0 leaves at 2.5, its place is free when the iteration that began at 2 ends; r1 3-5, r2 leaves at 4.5; r3 5-6
    result = run()

    assert result.requests["completed_ns"].tolist() == [-1, 5 * MS, -1, 6 * MS]
    assert result.requests["due_ns"].tolist() == [2.5 * MS, 10 * MS, 4.5 * MS, -1]
    assert result.summary["requests"]["timed_out"] == 2
    assert result.summary["deadlines"] == {"given": 3, "missed": 2}


LOOP = {"mode": "concurrency", "concurrency": 4}


@pytest.mark.parametrize("load", [{}, LOOP, LOOP | {"client_delay_s": 1.0}], ids=["open", "closed", "with a delay"])
def test_who_waits_on_gets_the_answer_and_the_miss_is_counted(run, load):
    # one after the other: 0-4, 4-6, 6-7, 7-8; r0 was due at 2.5 and r2 at 4.5
    result = run(load, cancel_at_deadline=False)

    assert result.requests["completed_ns"].tolist() == [4 * MS, 6 * MS, 7 * MS, 8 * MS]
    assert result.summary["requests"]["timed_out"] == 0
    assert result.summary["deadlines"] == {"given": 3, "missed": 2}
    assert "deadlines    2 of 3 missed" in simulator.results.summary_table(result.summary)


def test_what_is_not_due_yet_is_not_missed(tmp_path, run):
    (tmp_path / "trace.csv").write_text(TRACE)
    result = run({"mode": "concurrency", "concurrency": 4, "grace_s": 0.0}, cancel_at_deadline=False, duration_s=0.0045)

    # grace ends at 4.5 ms for all, whatever they wait for: r0 is done, r1 was not; r2 and r3 neither
    assert result.requests["status"].tolist() == [records.COMPLETED] + 3 * [records.TIMED_OUT]
    assert result.summary["deadlines"] == {"given": 3, "missed": 3}


def test_without_deadlines_there_is_nothing_to_tell(tmp_path, run):
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,4\n")
    result = run()

    assert "deadlines" not in result.summary
    assert "due_ns" not in result.requests.dtype.names
    assert np.all(result.requests["status"] == records.COMPLETED)


@pytest.mark.parametrize("load", [{}, LOOP], ids=["open", "closed"])
def test_who_has_no_deadline_cannot_wait_beyond_it(tmp_path, run, load):
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,4\n")

    with pytest.raises(InputErrors, match=r"workload\.cancel_at_deadline: no request of this workload has a deadline"):
        run(load, cancel_at_deadline=False)


@pytest.mark.parametrize("decisions", [0, 1])
def test_the_clock_does_not_wait_for_a_deadline_that_was_kept(tmp_path, decisions):
    # A prompt of one token and two iterations of 5 ms: done after 10 ms, long before the client would give up.
    (tmp_path / "kept.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,1,2,3\n")
    (tmp_path / "kept.toml").write_text(
        'engine = {num_gpu_blocks = 10, max_model_len = 128}\nworkload = {type = "trace", path = "kept.csv"}\n'
        f"output = {{decisions = {decisions}}}\n[latency]\nbackend = \"linear\"\nbase_us = 5000.0\n")

    summary = simulator.run(tmp_path / "kept.toml").summary

    assert summary["clock_s"] == summary["duration_s"] < 0.02
