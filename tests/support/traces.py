"""Experiments that play a trace back while every iteration lasts 1 ms, and the traces in ../shared."""
import json
import os
from pathlib import Path

import pytest
import tomli_w

import simulator
from simulator.domain import records

SHARED = Path(os.environ.get("SIM_WORKLOADS", Path(__file__).resolve().parents[3] / "shared/data/workloads"))
ONE_MS = {
    "name": "agents",
    "engine": {"num_gpu_blocks": 200_000, "max_model_len": 1_000_000, "max_num_batched_tokens": 1_000_000,
               "block_size": 16, "async_scheduling": False},
    "latency": {"backend": "linear", "base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                "per_context_token_us": 0.0},
}


def shared(name):
    """Return a trace's path in ../shared, or skip the test."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def json_lines(*lines):
    """Return objects as JSON Lines, texts as they are."""
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)


class Played:
    """What became of a trace: fields by request id, times in ms."""

    def __init__(self, result):
        self.result = result
        self._rows = {_text(row["request_id"]): row for row in result.requests}

    def ms(self, name):
        """Return when a request came and when it was completed; None: never."""
        return tuple(None if self._rows[name][field] < 0 else self._rows[name][field] / 1e6
                     for field in ("arrival_ns", "completed_ns"))

    def names(self):
        """Return the ids, in the order of the table."""
        return list(self._rows)

    def all_ms(self):
        """Return that of all, in the order of the table."""
        return [self.ms(name) for name in self._rows]

    def status(self, name):
        """Return how a request ended."""
        return records.STATUS_NAMES[self._rows[name]["status"]]

    def of(self, name, field):
        """Return a field of a request."""
        return self._rows[name][field].item()


def _text(request_id):
    return request_id.decode() if isinstance(request_id, bytes) else str(request_id)


def play(folder, path, name="csv", *, load=None, engine=None, **workload):
    """Run a trace of the format `name` step by step and fast-forward; return what became of it, the same in both."""
    workload = {"type": "trace", "path": str(path), "format": name, **workload} | ({"load": load} if load else {})
    played = []
    for fast_forward in (False, True):
        table = ONE_MS | {"engine": ONE_MS["engine"] | {"fast_forward": fast_forward} | (engine or {}),
                          "workload": workload}
        (folder / "experiment.toml").write_text(tomli_w.dumps(table))
        played.append(Played(simulator.run(folder / "experiment.toml")))
    step_by_step, at_once = (each.result.requests for each in played)
    assert step_by_step.tobytes() == at_once.tobytes()
    return played[1]
