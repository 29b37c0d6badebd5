"""Requests that the preset of a benchmark tool sends; every iteration lasts 1 ms, and whole prompts fit into one."""
import simulator
from simulator.config.load import load_experiment

MS = 1_000_000
EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4000, async_scheduling = false}
[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "synthetic"
"""
LENGTHS = """prompt_tokens = {distribution = "constant", tokens = 1}
output_tokens = {distribution = "constant", tokens = %d}
"""


def written(folder, text, outputs=1):
    """Write an experiment with these keys of [workload]; return its file.

    outputs : tokens of each; 0: said in `text`.
    """
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT + (LENGTHS % outputs if outputs else "") + text)
    return file


def section(folder, text, outputs=1):
    """Return [workload] as it was read."""
    return load_experiment(written(folder, text, outputs)).workload


def run(folder, text, outputs=1, **overrides):
    """Return the result of such an experiment."""
    return simulator.run(written(folder, text, outputs), overrides)


def arrivals_ms(result):
    """Return when the requests came, by row, in ms."""
    return [time / MS for time in result.requests["arrival_ns"].tolist()]
