"""Experiments with images in prompts; a step takes 10 ms besides."""

EXPERIMENT = """
engine = {num_gpu_blocks = 5000, max_model_len = 20_000, async_scheduling = false, %s}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""


def prompts_in(folder, prompts):
    """Write a trace of requests with these prompts, all at 0 s, one token of output each."""
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt"]
    for prompt in prompts:
        tokens = sum(int(piece.split(":")[1]) for piece in prompt.split("/"))
        lines.append(f"0,{tokens},1,{prompt}")
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
