"""A run that ends before its requests do says so, and how many it left; so do requests that never come."""
import numpy as np
import pytest

import simulator
from results.fakes import MS, replicas_of, requests_of, small_run, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.cut import cut_notes

# An iteration takes 10 ms, a request of 100 tokens a second.
EXPERIMENT = """
name = "cut"
[engine]
max_model_len = 4096
num_gpu_blocks = 1000
max_num_seqs = {seats}
[latency]
backend = "linear"
base_us = 10000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
{workload}
"""
DRAWN = """type = "synthetic"
{size}
prompt_tokens = {{distribution = "constant", tokens = 100}}
output_tokens = {{distribution = "constant", tokens = 100}}
{more}
"""
EACH_SECOND = DRAWN.format(size="num_requests = 50", more='arrival = {process = "constant", rate_per_s = 1.0}')
CLOSED = DRAWN.format(size="duration_s = 20.0", more='load = {mode = "concurrency", concurrency = 4}')
COUNTED = DRAWN.format(size="num_requests = 50", more='load = {mode = "concurrency", concurrency = 4}')
PAUSING = DRAWN.format(size="duration_s = 60.0",
                       more='load = {mode = "concurrency", concurrency = 1, think_time_s = 10.0}')
SESSION = ("arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s\n"
           + "".join(f"0,10,100,{session},{turn},{1 if turn else 0}\n" for session in "ab" for turn in range(5)))


@pytest.fixture
def notes(tmp_path):
    def notes(workload, horizon_s, seats=8):
        path = tmp_path / "cut.toml"
        path.write_text(EXPERIMENT.format(workload=workload, seats=seats))
        diagnosis = simulator.run(path, {"horizon_s": horizon_s}).summary["diagnosis"]
        return [note for note in diagnosis if "horizon" in note]
    return notes


@pytest.mark.parametrize(("workload", "seats", "horizon_s", "note"), [
    # at 1, 2, 3, ... s one comes, and stays 1 s
    (EACH_SECOND, 8, 5.5, "at 5.5 s: of 50 requests 1 ran, 0 waited and 45 had not come"),
    (EACH_SECOND, 8, 0.5, "at 0.5 s: of 50 requests 0 ran, 0 waited and 50 had not come; none is complete, so that "
                          "latencies are blank and rates 0"),
    # four at once, one seat
    (COUNTED, 1, 0.5, "at 0.5 s: of 50 requests 1 ran, 3 waited and 46 had not come; none is complete, so that "
                      "latencies are blank and rates 0"),
    # how many would have come is not known: the load has an end alone
    (CLOSED, 8, 5.5, "at 5.5 s: of 24 requests 4 ran, 0 waited and 0 had not come; clients would have sent more"),
    (PAUSING, 8, 5.5, "at 5.5 s: of 1 requests 0 ran, 0 waited and 0 had not come; clients would have sent more"),
])
def test_a_horizon_says_how_many_requests_it_leaves(notes, workload, seats, horizon_s, note):
    assert notes(workload, horizon_s, seats) == [f"horizon_s cut the run {note}"]


@pytest.mark.parametrize(("workload", "horizon_s"), [
    (EACH_SECOND, 1e4), (CLOSED, 21.5), (COUNTED, 1e4), (CLOSED, "inf")])
def test_a_horizon_behind_the_last_end_cuts_nothing(notes, workload, horizon_s):
    assert notes(workload, float(horizon_s)) == []


def test_later_turns_of_sessions_had_not_come(notes, tmp_path):
    # turns of 1 s each with a second between: at 2.5 s the second of each session runs, three are to come
    (tmp_path / "turns.csv").write_text(SESSION)

    assert notes('type = "trace"\npath = "turns.csv"', 2.5) == [
        "horizon_s cut the run at 2.5 s: of 10 requests 2 ran, 0 waited and 6 had not come"]


def test_turns_after_one_that_was_not_completed_are_told(tmp_path):
    # the first turn of b asks for more than max_model_len: four behind it never come
    (tmp_path / "turns.csv").write_text(SESSION.replace("0,10,100,b,0", "0,5000,100,b,0"))
    (tmp_path / "cut.toml").write_text(EXPERIMENT.format(workload='type = "trace"\npath = "turns.csv"', seats=8))

    summary = simulator.run(tmp_path / "cut.toml").summary

    assert summary["requests"]["not_sent"] == 4
    assert "4 requests never came: one that they wait for did not complete" in summary["diagnosis"]


def test_a_run_that_was_stopped_says_what_it_left():
    # of the small run two are complete, one runs, one waits, one is rejected, one is to come
    assert cut_notes(small_run(complete=False)) == [
        "the run stopped at 0.06 s: of 6 requests 1 ran, 1 waited and 1 had not come"]
    assert cut_notes(small_run()) == []             # who waits for ever is the engine's to tell


def test_what_is_measured_does_not_change_what_was_cut():
    requests = requests_of([(0, 0, 0, 1, 2, 5, 3, records.COMPLETED), (0, 0, 0, 1, None, 5, 3, records.RUNNING)])
    run = Run(workload_of(requests), True, 10 * MS, replicas_of({}), WeightedSamples(), horizon_ns=10 * MS)
    run.workload.measured = np.array([True, False])

    assert cut_notes(run) == ["horizon_s cut the run at 0.01 s: of 2 requests 1 ran, 0 waited and 0 had not come"]
