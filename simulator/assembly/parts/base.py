"""A part: one feature, as config, engine and results see it."""
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.domain.columns import Column

Fault = tuple[tuple, str]       # path of a key, and the message


class Rows(NamedTuple):
    """A table of results.h5; `domain.columns.TABLES` describes its columns.

    dtype : of a row. why_absent : why a run may not have the table. grows : rows are written while the run goes on.
    """

    dtype: np.dtype
    why_absent: str
    grows: bool = False


class Part:
    """A feature of an experiment; there is an object for each run.

    keys : dotted key of the experiment file -> its annotation; `registry.PARTS` has a line for each, and for keys of
        other Structs. An experiment that gives such a key uses the part.
    columns : columns of /requests, with their unit, meaning, and how those of a prefill leg are merged; an operation
        records their values in `Run.columns`.
    tables : tables of results.h5. conflicts : rows of config.conflicts, of features that do not go with this one.
    summary_keys : keys of summary.json, dotted as in `results.summary_keys`.
    summary_before : key of summary.json in front of which the entries of `summary` are put; "": at the end.

    `prepare` and `meet` raise InputErrors for faults that need the facts of models and hardware.
    """

    keys: ClassVar[Mapping[str, Any]] = {}
    columns: ClassVar[Mapping[str, Column]] = {}
    tables: ClassVar[Mapping[str, Rows]] = {}
    conflicts: ClassVar[Sequence] = ()
    summary_keys: ClassVar[Mapping[str, Column]] = {}
    summary_before: ClassVar[str] = ""

    def __init__(self, experiment):
        self.experiment = experiment

    @staticmethod
    def unfold(layers) -> Iterable[str]:
        """Turn short forms of keys in Layers into long ones, or return faults."""
        return ()

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterable[Fault]:
        """Yield contradictions with other keys; parameters as in `checks.check_all`."""
        return ()

    def pool(self, pool):
        """Return a pool of the experiment, completed by this part."""
        return pool

    def requests(self, columns, seed: int):
        """Return the Columns of a workload, completed by this part."""
        return columns

    def prepare(self, sites: tuple) -> None:
        """Work out facts that depend on the experiment alone, and its Sites."""

    def meet(self, prepared) -> None:
        """Work out facts that depend on the pools of a Prepared, and its requests."""

    def repeated(self, replicas: int, span_s: float) -> Iterable[tuple[str, float, str]]:
        """Yield key, least number and name of rows or events repeated within span_s."""
        return ()

    def plan(self, plan, sink):
        """Return the plan with this part; `sink` : as in `assemble.build`."""
        return replace(plan, operations=(*plan.operations, *self.operations(sink)))

    def operations(self, sink) -> tuple[Callable, ...]:
        """Return factories of operations.

        Each is called with (Fleet, list of Gateway, ClusterPlan), and returns an
        `engine.operations.base.Operation`, or a `PythonOperation`.
        """
        return ()

    def listener(self, is_of_window: bool):
        """Return a receiver of rows of `records.ITERATION`; None: none is needed.

        is_of_window : only a section of the run may be measured.
        """
        return None

    def report(self, run, cluster) -> None:
        """Add results of a finished Cluster to its Run."""

    def events(self, run, window) -> Iterable[str]:
        """Return events of trace.json; `window` : results.trace_window.TraceWindow."""
        return ()

    def summary(self, run, summary: dict) -> dict:
        """Return entries of summary.json; "diagnosis": further remarks.

        run : the whole Run; `results.measured.measured_part` returns its measured requests. summary : other entries.
        """
        return {}
