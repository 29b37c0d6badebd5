"""Agents whose turns press on a small KV cache, for experiments of held KV and of the hits that were possible."""


def agents(seed, num_blocks, num_sessions):
    """Return an experiment, TOML up to [workload.sessions]."""
    return f"""
seed = {seed}
[engine]
num_gpu_blocks = {num_blocks}
max_model_len = 8192
max_num_seqs = 16
max_num_batched_tokens = 512
[latency]
backend = "linear"
per_prefill_token_us = 100.0
[workload]
type = "sessions"
num_sessions = {num_sessions}
[workload.arrival]
process = "poisson"
rate_per_s = 4.0
[workload.sessions]
rounds = {{distribution = "uniform", min = 2, max = 6}}
first_tokens = {{distribution = "uniform", min = 200, max = 700}}
new_tokens = {{distribution = "uniform", min = 20, max = 200}}
output_tokens = {{distribution = "uniform", min = 10, max = 60}}
think_time_s = {{distribution = "exponential", mean = 3.0}}
prefix_groups = 2
prefix_tokens = 100
"""
