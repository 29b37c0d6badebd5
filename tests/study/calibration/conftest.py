"""A simulated server in the place of a real one."""
import csv

import pytest

import simulator
from simulator.workload.formats.observed_columns import COLUMNS

SERVER = """
name = "server"
[engine]
max_model_len = 2048
num_gpu_blocks = 1000
max_num_batched_tokens = 512
max_num_seqs = 32
async_scheduling = false

[latency]
backend = "linear"
base_us = 5000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""
WORKLOAD = """
[workload]
type = "synthetic"
num_requests = 300
arrival = {process = "poisson", rate_per_s = 6.0}
prompt_tokens = {distribution = "uniform", min = 20, max = 600}
output_tokens = {distribution = "uniform", min = 2, max = 80}
"""
STEPS = ("start_s", "duration_s", "num_sequences", "prefill_tokens", "decode_tokens", "context_tokens")


@pytest.fixture
def serve(tmp_path):
    """Return what writes observed.csv and steps.csv of a simulated server, as if they had been measured.

    truth : keys of it. name : of the folder. late_s : how much later than planned every tenth request is sent.
    """
    (tmp_path / "server.toml").write_text(SERVER)
    (tmp_path / "true.toml").write_text(f'extends = "server.toml"\n{WORKLOAD}')

    def _serve(truth, name="measured", late_s=0.0, with_steps=False, **more):
        result = simulator.run(tmp_path / "true.toml", {**truth, **more})
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "observed.csv", COLUMNS, [row_of(i, each, late_s) for i, each in enumerate(result.requests)])
        if with_steps:
            gap_ns = round(1e3 * truth.get("latency.host.iteration_us", 0.0))
            write(folder / "steps.csv", STEPS, [step_of(each, gap_ns) for each in result.iterations])
        return result
    return _serve


def row_of(number, request, late_s):
    sent = request["arrival_ns"] / 1e9
    return {
        "request_id": number, "planned_s": max(sent - late_s * (number % 10 == 0), 0.0), "sent_s": sent,
        "ttft_s": (request["first_token_ns"] - request["arrival_ns"]) / 1e9,
        "e2el_s": (request["completed_ns"] - request["arrival_ns"]) / 1e9, "input_tokens": request["prompt_tokens"],
        "output_tokens": request["output_tokens"], "status": "ok"}


def step_of(iteration, gap_ns):
    return {
        "start_s": iteration["start_ns"] / 1e9, "duration_s": (iteration["duration_ns"] - gap_ns) / 1e9,
        "num_sequences": iteration["sequences"], "prefill_tokens": iteration["prefill_tokens"],
        "decode_tokens": iteration["decode_tokens"], "context_tokens": iteration["context_tokens"]}


def write(path, columns, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
