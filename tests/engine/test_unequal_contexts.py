"""Batches tell how far their contexts lie apart, however they are formed: what is priced by it shows that."""
import numpy as np
import pytest

import simulator
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from support.operator_profiles import UNEQUAL, write_layers

EXPERIMENT = """
model = {{name = "llama-3.1-8b"}}
hardware = {{name = "h100-sxm-80gb"}}
latency = {{backend = "operators", path = "{folder}", cache_directory = "cache"}}
engine = {{num_gpu_blocks = 60, max_model_len = 512, max_num_seqs = 6, max_num_batched_tokens = 64}}

[workload]
type = "synthetic"
num_requests = 60
arrival = {{process = "poisson", rate_per_s = 400.0}}
prompt_tokens = {{distribution = "uniform", min = 1, max = 200}}
output_tokens = {{distribution = "uniform", min = 1, max = 60}}
"""
SCHEDULERS = {
    "vllm": {}, "vllm, synchronous": {"engine.async_scheduling": False}, "vllm, hot": {"engine.num_gpu_blocks": 34},
    "sarathi": {"engine": {"scheduler": "sarathi", "num_gpu_blocks": 60, "max_model_len": 512}},
    "sglang": {"engine": {"scheduler": "sglang", "num_gpu_blocks": 1000, "max_model_len": 512}},
    "stages": {"topology.pipeline_parallel": 2}, "ranks": {"topology.data_parallel": 2},
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "unequal.toml"
    path.write_text(EXPERIMENT.format(folder=write_layers(tmp_path, unequal=UNEQUAL)))
    return path


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_taking_runs_at_once_changes_nothing(file, scheduler):
    overrides = SCHEDULERS[scheduler]
    if "engine" in overrides:
        overrides = {f"engine.{key}": value for key, value in overrides["engine"].items()}
    fast, stepwise, by_mean = (simulator.run(file, overrides | more).requests for more in (
        {}, {"engine.fast_forward": False}, {"latency.without": ["unequal_contexts"]}))
    for name in ("scheduled_ns", "first_token_ns", "completed_ns"):
        assert np.array_equal(fast[name], stepwise[name])
    assert (fast["completed_ns"] != by_mean["completed_ns"]).any()


def test_iterations_take_what_the_model_says_of_their_contexts(file, tmp_path):
    (tmp_path / "two.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,16,30\n0.0,40,12\n")
    overrides = {"workload": {"type": "trace", "path": str(tmp_path / "two.csv")}, "output.iterations": True}
    experiment = load_experiment(file, overrides)
    pool = experiment.all_pools()[0]
    model = latency_model(Site(pool).check())

    result = simulator.run(file, overrides)

    # The second request is computed in iteration 2, beside the first one's second decode; it has 11 decodes more.
    expected = [model.predict_iteration_ns(decode=[16 + i, 38 + i] if i < 14 else [16 + i]) for i in range(3, 30)]
    assert result.iterations["duration_ns"].tolist()[3:] == expected
