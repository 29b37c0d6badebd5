"""When iterations begin to execute, beside when they were scheduled."""
import numpy as np
import pytest

import simulator

MS = 1_000_000

EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 400, max_model_len = 4096, async_scheduling = false}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
base_us = 4000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
"""


def iterations_of(folder, trace, **overrides):
    (folder / "experiment.toml").write_text(EXPERIMENT)
    rows = "".join(f"{row}\n" for row in trace)
    (folder / "trace.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    return simulator.run(folder / "experiment.toml", overrides=overrides).iterations


@pytest.mark.parametrize("trace", [["0,4,5"], ["0,4,5", "0.009,4,3"]])
def test_without_others_ahead_an_iteration_begins_when_it_is_scheduled(tmp_path, trace):
    table = iterations_of(tmp_path, trace)

    assert (np.diff(table["start_ns"]) == 4 * MS).all()
    assert table["begin_ns"].tolist() == table["start_ns"].tolist()


def test_what_is_scheduled_ahead_begins_when_the_one_before_it_ends(tmp_path):
    # Scheduled while the one before executes, each begins 4 ms later.
    table = iterations_of(tmp_path, ["0,4,4"], **{"engine.async_scheduling": True})

    assert table["begin_ns"].tolist() == [0, 4 * MS, 8 * MS, 12 * MS]
    assert table["start_ns"].tolist() == [0, 0, 4 * MS, 8 * MS]


def test_in_a_pipeline_an_iteration_begins_when_the_stage_is_free(tmp_path):
    # 2 ms in each of two stages. Both requests come at 0 and make a batch each: the second waits for the first stage.
    overrides = {"topology.pipeline_parallel": 2, "engine.max_num_batched_tokens": 16, "engine.max_num_seqs": 16}
    table = iterations_of(tmp_path, ["0,16,1", "0,16,1"], **overrides)

    rows = table[["stage", "start_ns", "begin_ns", "duration_ns"]].tolist()
    assert sorted(rows) == [(0, 0, 0, 2 * MS), (0, 0, 2 * MS, 2 * MS),
                            (1, 2 * MS, 2 * MS, 2 * MS), (1, 4 * MS, 4 * MS, 2 * MS)]


@pytest.mark.parametrize("overrides", [
    {"engine.async_scheduling": True}, {"topology.pipeline_parallel": 4}, {"topology.replicas": 3}])
def test_iterations_of_a_stage_never_overlap(tmp_path, overrides):
    generator = np.random.default_rng(1)
    trace = [f"{time:.6f},{prompt},{output}" for time, prompt, output in zip(
        np.cumsum(generator.exponential(0.01, 60)), generator.integers(1, 3000, 60), generator.integers(1, 40, 60),
        strict=True)]
    table = iterations_of(tmp_path, trace, **overrides)

    assert (table["begin_ns"] >= table["start_ns"]).all()
    for place in {(row["replica"], row["stage"]) for row in table}:
        own = table[(table["replica"] == place[0]) & (table["stage"] == place[1])]
        own = own[np.argsort(own["begin_ns"])]
        assert (own["begin_ns"][1:] >= (own["begin_ns"] + own["duration_ns"])[:-1]).all()
