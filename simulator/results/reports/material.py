"""What a report is made of: a result, what was asked for, and which tables are there."""
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli

from simulator.errors import InputErrors
from simulator.results.lanes import COLUMNS as LANE_COLUMNS
from simulator.results.lanes import Lanes
from simulator.results.latency_charts import chosen_requests, samples_ms
from simulator.results.load import load_results

VERSIONS = ("version", "git_revision", "python", "numpy")     # the same for equal runs; times and machine are not
REQUEST_COLUMNS = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "output_tokens",
                   "status", "cause", "measured")       # that charts and verdicts of a page look at
LARGE_TRACE_BYTES = 200_000_000     # a browser holds about 2 GB of what Perfetto makes of it


class Material:
    """A result with its experiment; tables are read when they are asked for.

    result : as `load_results` gives it.
    directory : where it lies.
    absent : sentences about tables that were asked for here and are not there, in order.

    Parameters
    ----------
    directory : of results.

    Raises
    ------
    InputErrors
        There are none, or they are broken.
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.result = load_results(directory)
        self.summary = self.result.summary
        self.experiment = _toml(self.directory / "resolved.toml")
        self.absent: dict[str, str] = {}

    @cached_property
    def requests(self) -> np.ndarray | None:
        """Requests that count; None: the table was not written."""
        try:
            return chosen_requests(self.result, REQUEST_COLUMNS)
        except LookupError:
            self.absent["requests"] = "Charts of requests are left out: [output] requests = false."
            return None

    @cached_property
    def lanes(self) -> Lanes | None:
        """Iterations by replica; None: the table was not written."""
        try:
            return Lanes(self.result.columns("iterations", LANE_COLUMNS), self.result.replicas)
        except LookupError:
            self.absent["iterations"] = "Charts over time and of batches are left out: [output] iterations = false."
            return None

    def samples_ms(self, key: str) -> np.ndarray | None:
        """Return one latency of all that completed; None: its table was not written."""
        if key != "itl_ms" and self.requests is None:
            return None
        try:
            return samples_ms(self.result, key, self.requests)
        except LookupError:
            self.absent[key] = ("The distribution of ITL is left out: [output] token_times = false; the table above "
                                "has its percentiles.")
            return None

    def bound_ms(self, key: str) -> float | None:
        """Return the bound of [slo] on a latency; None: there is none."""
        return self.experiment.get("slo", {}).get(key)

    @property
    def resolved_toml(self) -> str:
        """The experiment with every default written out."""
        return (self.directory / "resolved.toml").read_text(encoding="utf-8")

    def versions(self) -> dict[str, str]:
        """Return what made the results, as provenance.json has it."""
        path = self.directory / "provenance.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputErrors([f"{path}: cannot be read: {error}"]) from error
        return {name: str(found[name]) for name in VERSIONS if found.get(name) is not None}

    def warnings(self) -> list[str]:
        """Return what a reader should know, one sentence each."""
        found = list(self.summary["diagnosis"])
        trace = self.directory / "trace.json"
        if trace.is_file() and trace.stat().st_size > LARGE_TRACE_BYTES:
            found.append(f"trace.json has {trace.stat().st_size / 1e6:,.0f} MB, which a browser may not hold: [output] "
                         "chrome_trace_window_s shows a part of the run")
        return found


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputErrors([f"{path}: cannot be read: {error}"]) from error
