"""The material of a report: a result, its experiment, and sentences for missing tables."""
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli

from simulator.errors import InputErrors
from simulator.results import request_passes
from simulator.results.lanes import Lanes
from simulator.results.load import load_results
from simulator.results.progress import RowProgress
from simulator.results.request_passes import Gaps, Requests, Sample

VERSIONS = ("version", "git_revision", "python", "numpy")     # equal for equal runs; times and machine are not
LARGE_TRACE_BYTES = 200_000_000     # a browser holds about 2 GB of Perfetto's data for it
LEFT_OUT = {"requests": "Charts of requests are left out: [output] requests = false.",
            "itl_ms": "The distribution of ITL is left out: [output] token_times = false; the table above has its "
                      "percentiles.",
            "iterations": "Charts over time and of batches are left out: [output] iterations = false."}
PASSES = {"requests": 2, "iterations": 3, "token_times": 2}         # over each table, or a few more

class Material:
    """A result with its experiment; tables are read on first use.

    Tables are read in blocks of rows, several times, and none is held.

    result : as `load_results` gives it.
    directory : of the results.
    bounds : on latencies, by key: those of [slo], or of the results to compare with.

    Parameters
    ----------
    directory : of results.
    progress : shows how many rows are to be read, and how many were read; None: no bar is shown.

    Raises
    ------
    InputErrors
        There are none, or they are broken.
    """

    def __init__(self, directory: str | Path, progress: RowProgress | None = None):
        self.directory = Path(directory)
        self.result = load_results(directory)
        self.summary = self.result.summary
        self.experiment = _toml(self.directory / "resolved.toml")
        self.bounds: dict[str, float] = self.experiment.get("slo", {})
        self._absent: set[str] = set()
        self._is_beside = False
        self._progress = progress or RowProgress(quiet=True)

    def stand_beside(self, other: "Material") -> None:
        """Become the base of a comparison: with the bounds of `other`, latencies only."""
        self.bounds, self._is_beside = other.bounds, True

    @property
    def absent(self) -> dict[str, str]:
        """Sentences about tables that are needed here and were not written, in order."""
        return {name: sentence for name, sentence in LEFT_OUT.items() if name in self._absent}

    @cached_property
    def requests(self) -> Requests | None:
        """Measured requests; None: the table was not written."""
        if not self._has("requests"):
            return None
        self._expect("requests")
        until_ns = 0 if self._is_beside or self.lanes is None else self.lanes.span.end_ns
        return Requests(lambda: self._blocks("requests", request_passes.COLUMNS), self.bounds, until_ns)

    @cached_property
    def lanes(self) -> Lanes | None:
        """Iterations by replica; None: the table was not written."""
        if not self._has("iterations"):
            return None
        self._expect("iterations")
        return Lanes(lambda names: self._blocks("iterations", names), self.result.replicas, self.limits())

    @cached_property
    def gaps(self) -> Sample | None:
        """Gaps between tokens; None: their times were not written."""
        try:
            offsets = self.result.token_offsets()
        except LookupError:
            self._absent.add("itl_ms")
            return None
        self._progress.expect(PASSES["token_times"] * int(offsets[-1]))
        return Gaps(self._token_times, offsets).sample

    def sample(self, key: str) -> Sample | None:
        """Return one latency of all completed requests; None: its table was not written."""
        if key == "itl_ms":
            return self.gaps
        return None if self.requests is None else self.requests.samples[key]

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return max_num_seqs and max_num_batched_tokens of each row of /replicas.

        0: it is not known.

        Rows follow the order of pools; where pools differ and their replicas do not add up, all are 0.
        """
        return limits_of(self.experiment, len(self.result.replicas))

    def _has(self, table: str) -> bool:
        is_there = self.result.num_rows(table) is not None
        if not is_there:
            self._absent.add(table)
        return is_there

    def _expect(self, table: str) -> None:
        self._progress.expect(PASSES[table] * self.result.num_rows(table))

    def _token_times(self) -> Iterator[np.ndarray]:
        for block in self.result.token_time_blocks():
            yield block
            self._progress.show(len(block))

    def _blocks(self, table: str, names: tuple[str, ...]) -> Iterator[dict[str, np.ndarray]]:
        for block in self.result.column_blocks(table, names):
            yield block
            self._progress.show(len(block[names[0]]))

    @property
    def resolved_toml(self) -> str:
        """The experiment with every default written out."""
        return (self.directory / "resolved.toml").read_text(encoding="utf-8")

    def versions(self) -> dict[str, str]:
        """Return the versions that made the results, as in provenance.json."""
        path = self.directory / "provenance.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputErrors([f"{path}: cannot be read: {error}"]) from error
        return {name: str(found[name]) for name in VERSIONS if found.get(name) is not None}

    def warnings(self) -> list[str]:
        """Return warnings for the reader, one sentence each."""
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


def limits_of(experiment: dict[str, Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits of `Material.limits` for a number of replicas."""
    pools = experiment.get("pools", [])
    engines = [pool.get("engine", {}) for pool in pools] or [experiment.get("engine", {})]
    found = [(engine.get("max_num_seqs", 0), engine.get("max_num_batched_tokens", 0)) for engine in engines]
    if len(set(found)) == 1:
        rows = found[:1] * count
    else:
        rows = [each for pool, each in zip(pools, found, strict=True)
                for _ in range(pool.get("replicas", 0) * pool.get("topology", {}).get("data_parallel", 1))]
        rows = rows if len(rows) == count else [(0, 0)] * count
    limits = np.array(rows, np.int64).reshape(count, 2)
    return limits[:, 0], limits[:, 1]
