"""Samples of the state of all replicas at equal intervals: table /replica_samples."""
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from msgspec import Meta

from simulator.assembly.parts.base import Part, Rows
from simulator.assembly.parts.late import late_note
from simulator.domain import records
from simulator.results.tables import without_spare

KEY, TABLE = "output.replica_samples_s", "replica_samples"


class Samples(Part):
    """Samples of queue, KV blocks and requests of every replica."""

    keys = {KEY: Annotated[float, Meta(ge=0, le=1e6, description=(
        "time between two samples of queue, KV blocks and requests of every replica; 0: no samples"))]}
    tables = {TABLE: Rows(without_spare(records.SAMPLE), f"[output] {KEY.partition('.')[2]} was 0", grows=True)}

    def repeated(self, replicas: int, span_s: float) -> Iterator[tuple[str, float, str]]:
        yield KEY, replicas * span_s / max(self.experiment.output.replica_samples_s, 1e-9), "rows"

    def operations(self, sink) -> tuple:
        if TABLE not in sink.streams:
            return ()
        from simulator.engine.operations.sampler import Sampler
        from simulator.engine.output.row_stream import RowStream

        rows = RowStream(records.SAMPLE, partial(sink.append, TABLE))
        period_ns = max(round(self.experiment.output.replica_samples_s * 1e9), 1)
        sink.pending.append(rows.flush)
        return (lambda fleet, gateways, plan: Sampler(fleet, period_ns, rows),)

    def summary(self, run, summary: dict) -> dict:
        """See Part; samples of the beginning alone."""
        notes = late_note(KEY, self.experiment.output.replica_samples_s, summary["clock_s"], "a second sample")
        return {"diagnosis": notes} if notes else {}
