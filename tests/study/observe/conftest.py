"""Whole measurements of the stand-in."""
import csv
import json
from typing import NamedTuple

import pytest
import tomli_w

from simulator import cli
from support.sse_server import SERVED

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


@pytest.fixture
def experiment(tmp_path):
    """Write an experiment with such a trace or workload, and return its path."""
    def write(trace=None, **tables):
        if trace is not None:
            (tmp_path / "trace.csv").write_text(trace)
            tables = {"workload": {"type": "trace", "path": str(tmp_path / "trace.csv")}} | tables
        path = tmp_path / "measured.toml"
        path.write_text(tomli_w.dumps(ENGINE | tables))
        return path
    return write


@pytest.fixture
def observe(tmp_path, capsys):
    """Measure a server; return an Outcome."""
    def run(path, server, *options, model=SERVED):
        directory = tmp_path / "out"
        status = cli.main(["observe", str(path), "--url", getattr(server, "url", server), "--model", model, "--out",
                           str(directory), "--self-test", "0", *map(str, options)])
        printed = capsys.readouterr()
        return Outcome(status, *read(directory), printed.out, printed.err, directory)
    return run


def read(directory):
    """Return rows of observed.csv and server.json; none where they are not there."""
    rows, server = [], {}
    if (directory / "observed.csv").exists():
        with open(directory / "observed.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    if (directory / "server.json").exists():
        server = json.loads((directory / "server.json").read_text())
    return rows, server
