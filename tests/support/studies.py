"""A small study: four points, two seeds, runs of a few milliseconds."""

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
