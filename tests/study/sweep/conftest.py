import pytest

EXPERIMENT = """
seed = 5

[engine]
max_num_seqs = 4
max_model_len = 512
num_gpu_blocks = 200

[latency]
backend = "linear"

[workload]
type = "synthetic"
num_requests = 60
prompt_tokens = {distribution = "uniform", min = 10, max = 60}
output_tokens = {distribution = "uniform", min = 2, max = 20}

[workload.arrival]
process = "poisson"
rate_per_s = 20.0
"""

STUDY = """
extends = "base.toml"
name = "small"

[study]
kind = "sweep"
seeds = 2

[study.axes]
"workload.arrival.rate_per_s" = [10.0, 30.0]
"engine.max_num_seqs" = [2, 8]

[study.statistics]
warmup = "none"
metrics = ["ttft_ms.mean", "request_throughput"]
"""


@pytest.fixture
def study(tmp_path):
    """Write a study of four points and eight runs; return its path."""
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def rewrite(study):
    """Replace parts of the study file."""
    def replace(*pairs):
        text = study.read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        study.write_text(text)
        return study

    return replace
