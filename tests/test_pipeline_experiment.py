"""Experiments with pipeline stages, from file to files."""
import argparse
import json
from itertools import pairwise

import h5py
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors
from simulator.study import profile_layers

SATURATED = """
[model]
name = "llama-3.1-8b"
[hardware]
name = "h100-sxm-80gb"
[topology]
node = "dgx-h100"
[engine]
max_num_batched_tokens = 512
max_model_len = 4096
[latency]
backend = "roofline"
[workload]
type = "synthetic"
num_requests = 200
arrival = {process = "constant", rate_per_s = 1000.0}
prompt_tokens = {distribution = "uniform", min = 200, max = 1000}
output_tokens = {distribution = "uniform", min = 20, max = 60}
[output]
chrome_trace = true
"""
TWO_STAGES = {"topology.pipeline_parallel": 2}


@pytest.fixture
def saturated(tmp_path):
    path = tmp_path / "saturated.toml"
    path.write_text(SATURATED)
    return path


@pytest.fixture
def layer_tables(tmp_path):
    """Tables of per-layer times for two stages."""
    parser = argparse.ArgumentParser()
    profile_layers.add_arguments(parser)
    words = ["llama-3.1-8b", "h100-sxm-80gb", "--pipeline-parallel", "2", "--node", "dgx-h100",
             "--batch-sizes", "1,256", "--lengths", "64,8192", "--out", str(tmp_path / "tables")]
    assert profile_layers.run(parser.parse_args(words)) == 0
    return {"latency": {"backend": "aicb", "tables": str(tmp_path / "tables")}}


def assert_sound(result):
    """Every request was served; iterations count once, and no stage has two at a time."""
    summary, rows = result.summary, result.iterations
    assert summary["requests"]["completed"] == summary["requests"]["injected"] == 200
    assert np.unique(rows["stage"]).tolist() == [0, 1]
    first, last = (rows[rows["stage"] == stage] for stage in (0, 1))
    assert summary["iterations"] == len(first) == len(last)
    assert first["prefill_tokens"].sum() == summary["total_input_tokens"]
    assert (last["start_ns"][1:] >= last["start_ns"][:-1] + last["duration_ns"][:-1]).all()


def test_two_stages_serve_a_saturating_load_nearly_twice_as_fast(saturated):
    one, two = simulator.run(saturated), simulator.run(saturated, overrides=TWO_STAGES)

    assert_sound(two)
    # Not twice: the last stage has the output head too, and stages wait for one another where batches differ.
    assert 1.5 < one.summary["duration_s"] / two.summary["duration_s"] < 2.0


def test_a_stage_holds_half_the_weights_and_more_blocks(saturated):
    graphs = {"engine.cuda_graphs.memory_gib": 0.5}
    one, two = (simulator.run(saturated, overrides=graphs | stages) for stages in ({}, TWO_STAGES))

    # A block takes half of 16 x 131,072 bytes in each stage, and half of 16 GB of weights make room for more, less what
    # NCCL takes.
    blocks = [result.summary["kv_cache"]["num_blocks"] for result in (one, two)]
    assert blocks[1] == pytest.approx(2 * blocks[0] + 7.6e9 / (16 * 65_536), rel=0.01)


def test_layers_of_aicb_tables_are_divided_over_the_stages(saturated, layer_tables):
    result = simulator.run(saturated, overrides=TWO_STAGES | layer_tables)

    assert_sound(result)
    # 16 equal layers each, and a hand-over after the first
    rows = result.iterations
    first, last = (rows[rows["stage"] == stage]["duration_ns"].astype(float) for stage in (0, 1))
    assert np.all(first > last)
    assert np.median(first / last) < 1.1


def test_files_agree_with_the_result_and_reruns_with_each_other(saturated, tmp_path):
    for name in ("a", "b"):
        simulator.run(saturated, overrides=TWO_STAGES, out=tmp_path / name)

    for name in ("summary.json", "results.h5", "trace.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    with h5py.File(tmp_path / "a" / "results.h5") as file:
        rows = file["iterations"][:]
    assert (np.diff(rows["start_ns"]) >= 0).all()
    events = json.loads((tmp_path / "a" / "trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(rows)
    for stage in (0, 1):
        spans = [(event["ts"], event["dur"]) for event in complete if event["tid"] == stage]
        assert all(before + length <= after + 1e-3 for (before, length), (after, _) in pairwise(spans))


def test_stages_without_a_model_are_alike(tmp_path):
    path = tmp_path / "linear.toml"
    path.write_text("""
[topology]
pipeline_parallel = 4
[engine]
async_scheduling = false
max_model_len = 1000
num_gpu_blocks = 1000
[latency]
backend = "linear"
base_us = 4000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "trace"
path = "trace.csv"
""")
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,2\n")

    rows = simulator.run(path).iterations

    assert rows["stage"].tolist() == [0, 1, 2, 3] * 2
    assert rows["start_ns"].tolist() == [1_000_000 * i for i in range(8)]
    assert set(rows["duration_ns"].tolist()) == {1_000_000}


@pytest.mark.parametrize(("overrides", "message"), [
    ({"topology.pipeline_parallel": 33}, "pipeline_parallel = 33 is above the 32 layers of llama-3.1-8b"),
    ({"topology.pipeline_parallel": 2, "engine.async_scheduling": True, "engine.vllm_version": "0.10"},
     "engine.async_scheduling: expected false with topology.pipeline_parallel = 2"),
])
def test_what_cannot_be_simulated_is_refused(saturated, overrides, message):
    with pytest.raises(InputErrors, match=message):
        simulator.run(saturated, overrides=overrides)
