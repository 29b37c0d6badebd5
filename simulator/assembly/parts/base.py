"""A part: one feature, with all that config, engine and results need of it, in one file."""
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.domain.columns import Column


class Rows(NamedTuple):
    """A table of results.h5; `domain.columns.TABLES` describes its columns.

    dtype : of a row. why_absent : why a run may not have the table. grows : rows are written while the run goes on.
    """

    dtype: np.dtype
    why_absent: str
    grows: bool = False


class Part:
    """A feature of an experiment; there is an object for each run.

    keys : dotted key of the experiment file -> its annotation; `registry.PARTS` has a line for each. An experiment that
        gives such a key uses the part.
    columns : columns of /requests, with their unit, meaning, and how those of a prefill leg are merged; an operation
        records their values in `Run.columns`.
    tables : tables of results.h5.
    conflicts : rows of config.conflicts with the features that this one does not go with.
    summary_keys : keys of summary.json, dotted as in `results.summary_keys`.
    summary_before : key of summary.json in front of which the entries of `summary` are put; "": at the end.
    """

    keys: ClassVar[Mapping[str, Any]] = {}
    columns: ClassVar[Mapping[str, Column]] = {}
    tables: ClassVar[Mapping[str, Rows]] = {}
    summary_keys: ClassVar[Mapping[str, Column]] = {}
    summary_before: ClassVar[str] = ""
    conflicts: ClassVar[Sequence] = ()

    def __init__(self, experiment):
        self.experiment = experiment

    @staticmethod
    def unfold(layers) -> list[str]:
        """Turn short forms of the keys into long ones, and return faults.

        layers : config.layers.Layers of the experiment file.
        """
        return []

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterable[tuple[tuple, str]]:
        """Yield (path of a key, message) of each contradiction with other keys.

        sections, missing : as in `config.checks.check_all`.
        """
        return ()

    def pool(self, pool):
        """Return a pool of the experiment, completed by this part."""
        return pool

    def prepare(self, sites: tuple) -> None:
        """Work out facts that depend on the experiment alone.

        sites : assembly.site.Site of each pool.

        Raises
        ------
        InputErrors
            Faults that need the facts of models and hardware.
        """

    def meet(self, prepared) -> None:
        """Work out facts that depend on pools and requests.

        prepared : assemble.Prepared.

        Raises
        ------
        InputErrors
            As `prepare`.
        """

    def repeated(self, replicas: int, span_s: float) -> Iterator[tuple[str, float, str]]:
        """Yield key, number and name of repeated rows or events, as a lower bound.

        span_s : time during which requests arrive.
        """
        return iter(())

    def plan(self, plan, sink):
        """Return the ClusterPlan with what this part adds to it.

        sink : receives the rows of the run, see `assemble.build`.
        """
        return replace(plan, operations=(*plan.operations, *self.operations(sink)))

    def operations(self, sink) -> tuple[Callable, ...]:
        """Return factories of operations.

        Each is called with (Fleet, list of Gateway, ClusterPlan), and returns an
        `engine.operations.base.Operation`, or a `PythonOperation`.
        """
        return ()

    def listener(self, is_of_window: bool):
        """Return a receiver of iterations; None: the part needs none.

        Its `append` is called with rows of `records.ITERATION` during the run.

        is_of_window : only a part of the run may be measured.
        """
        return None

    def events(self, run, window) -> Iterable[str]:
        """Return events of trace.json; `window` : results.trace_window.TraceWindow."""
        return ()

    def summary(self, run, summary: dict) -> dict:
        """Return entries of summary.json; "diagnosis": further remarks.

        run : the finished Run; `results.measured.measured_part` returns its measured requests. summary : all other
        entries.
        """
        return {}
