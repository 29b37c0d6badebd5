"""Small servers whose capacity follows from theory, as study files."""
import json

from simulator import cli

# One request at a time, 1 ms each: M/D/1 or D/D/1.
SERVER = """
name = "server"

[engine]
max_num_seqs = 1
max_model_len = 16
num_gpu_blocks = 100
enable_prefix_caching = false
async_scheduling = false

[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0

[workload]
type = "synthetic"
num_requests = 1000
arrival = {process = "constant", rate_per_s = 500.0}
prompt_tokens = {distribution = "constant", value = 1}
output_tokens = {distribution = "constant", value = 1}
"""
STUDY = """
[study]
kind = "capacity"
from = 10.0
to = 5000.0
start = 500.0

[study.slo]
"ttft_ms.p99" = {max = 10.0}

[study.statistics]
warmup = "none"
min_tail = 0.0
"""


def written(folder, text):
    """Write a file; return its path as text."""
    path = folder / "server.toml"
    path.write_text(text)
    return str(path)


def words(text):
    """Return a text without the breaks of its lines."""
    return " ".join(text.split())


def asked(file, out, *options):
    """Search; return the exit status and the content of capacity.json, None where it was not written."""
    status = cli.main(["capacity", file, "--out", str(out), "--quiet", *options])
    path = out / "capacity.json"
    return status, json.loads(path.read_text()) if path.exists() else None
