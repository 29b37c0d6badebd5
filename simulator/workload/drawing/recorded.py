"""`trace`: arrival times from a column of a file, for requests whose lengths are drawn."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workload.drawing.rates.base import Placement
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import read_column


class TraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of a file, as they stand there; sorted."""

    path: Annotated[str, Meta(extra={"path": True}, description="CSV file, plain or .gz")]
    column: Annotated[str, Meta(description="its column of times in seconds")] = "arrived_at"


class Trace(Placement):
    """`trace`: recorded arrivals; num_requests takes the first ones."""

    Parameters = TraceParameters

    def __init__(self, parameters: TraceParameters):
        self._times_ns = read_column(parameters.path, read_bytes(parameters.path), parameters.column,
                                     Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True))

    def arrivals_s(self, generator):
        """Return the times; nothing is drawn."""
        self._times_ns.sort()
        return self._times_ns / 1e9
