"""Small runs, written to a folder: 10 ms an iteration, one token a request and iteration."""
import json
from pathlib import Path

import pandas as pd

import simulator
from simulator import cli

EXPERIMENT = """
name = "small"
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_num_seqs = 2, max_model_len = 1000, num_gpu_blocks = 100, async_scheduling = false}
output = {token_times = true}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "trace"
path = "requests.csv"
"""
# 0: 0-20 ms. 1: 10-30 ms. 2 waits for a place, 20-30 ms.
TRACE = """request_id,arrived_at,num_prefill_tokens,num_decode_tokens,tenant
first,0,10,2,"a, b"
second,0.005,20,2,
third,0.006,30,1,"a, b"
"""
# Many requests on two replicas.
BUSY = """
seed = 11
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 1200, max_num_seqs = 24, max_num_batched_tokens = 512, max_model_len = 2300}
latency = {backend = "linear"}
output = {token_times = true}
topology = {replicas = 2}
[workload]
type = "synthetic"
num_requests = 200
arrival = {process = "poisson", rate_per_s = 40.0}
prompt_tokens = {distribution = "lognormal", mean = 300, std = 300, max = 2000}
output_tokens = {distribution = "lognormal", mean = 40, std = 40, max = 300}
"""
PREEMPTED = {"engine.num_gpu_blocks": 160, "engine.max_num_seqs": 64}


def small_run(folder: Path, trace: str = TRACE, **overrides) -> Path:
    """Run the three requests, or those of another trace; return where the results are."""
    (folder / "small.toml").write_text(EXPERIMENT)
    (folder / "requests.csv").write_text(trace)
    simulator.run(folder / "small.toml", overrides, out=folder / "out")
    return folder / "out"


def busy_run(folder: Path, overrides: dict) -> simulator.Result:
    """Run the many requests; return what they left behind in `folder` / out."""
    (folder / "busy.toml").write_text(BUSY)
    return simulator.run(folder / "busy.toml", overrides, out=folder / "out")


def export(results: Path, format_: str, *options: str) -> Path:
    """Export results, let the test fail if that fails; return where the files are."""
    out = results.with_name(f"{results.name}_{format_}")
    assert cli.main(["export", str(results), "--as", format_, *options]) == 0
    return out


def table(folder: Path, name: str) -> pd.DataFrame:
    """Return a CSV file."""
    return pd.read_csv(folder / name)


def events(folder: Path) -> list[dict]:
    """Return the events of chrome_trace.json."""
    return json.loads((folder / "chrome_trace.json").read_text())["traceEvents"]
