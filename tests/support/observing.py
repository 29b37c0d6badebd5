"""Experiments that are measured, and what came of it."""
import csv
import json
from typing import NamedTuple

ENGINE = {"engine": {"scheduler": "vllm", "max_num_seqs": 100, "max_model_len": 4000, "num_gpu_blocks": 1000},
          "latency": {"backend": "linear"}}


class Outcome(NamedTuple):
    """Exit status, rows of observed.csv, server.json, and what was printed."""

    status: int
    rows: list
    server: dict
    out: str
    err: str
    directory: object


def arrivals(*times_s, prompt=10, output=4, **columns):
    """Return a native trace of requests at such times; `prompt` : their length, or that of each."""
    names = ["request_id", "arrived_at", "num_prefill_tokens", "num_decode_tokens", *columns]
    prompts = [prompt] * len(times_s) if isinstance(prompt, int) else prompt
    lines = [[number, time_s, prompts[number], output, *(column[number] for column in columns.values())]
             for number, time_s in enumerate(times_s)]
    return "\n".join(",".join(map(str, line)) for line in [names, *lines]) + "\n"


def read(directory):
    """Return rows of observed.csv and server.json; none where they are not there."""
    rows, server = [], {}
    if (directory / "observed.csv").exists():
        with open(directory / "observed.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    if (directory / "server.json").exists():
        server = json.loads((directory / "server.json").read_text())
    return rows, server
