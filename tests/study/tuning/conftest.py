import json

import pytest

from simulator import cli
from simulator.study.sweep.study_file import read_study
from simulator.study.tuning.tune_table import TuneTable, check

EXPERIMENT = """
seed = 5
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}

[workload]
type = "synthetic"
num_requests = 80
arrival = {process = "poisson", rate_per_s = 20.0}
prompt_tokens = {distribution = "uniform", min = 200, max = 1500}
output_tokens = {distribution = "uniform", min = 20, max = 200}
"""

STUDY = """
extends = "base.toml"
name = "small"

[study]
kind = "tune"
layouts = ["aggregated", "disaggregated"]
winners = 3

[study.objectives]
output_throughput_per_gpu = "max"
tokens_per_s_per_user = "max"

[study.axes]
"topology.tensor_parallel" = [1, 2]
"engine.max_num_seqs" = [8, 64]

[study.limits]
gpus = 3
"""
# One server of which an iteration takes 1 ms: 100 requests of one token each.
LINEAR = """
seed = 5
latency = {backend = "linear", base_us = 1000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
engine = {max_num_seqs = 1, max_model_len = 64, num_gpu_blocks = 100}

[workload]
type = "synthetic"
num_requests = 400
arrival = {process = "poisson", rate_per_s = 500.0}
prompt_tokens = {distribution = "constant", tokens = 1}
output_tokens = {distribution = "constant", tokens = 1}
"""


@pytest.fixture
def study(tmp_path):
    """Write a study of eight candidates that run, and more that do not; return what replaces parts of it."""
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    (tmp_path / "linear.toml").write_text(LINEAR)
    path = tmp_path / "small.toml"

    def write(*pairs, add=""):
        text = STUDY
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text + add)
        return path

    return write


@pytest.fixture
def asked(study):
    """Return what such a study asks."""
    return lambda *pairs, add="": check(read_study(study(*pairs, add=add), None, TuneTable))


@pytest.fixture
def tune(tmp_path):
    """Run `tune`; return exit status and tune.json."""
    def run(path, *options, out="out"):
        status = cli.main(["tune", str(path), "--out", str(tmp_path / out), "--jobs", "1", *options])
        told = tmp_path / out / "tune.json"
        return status, json.loads(told.read_text()) if told.exists() else None

    return run
