"""`trace`: arrival times, or lengths, from a column of a file."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.workload.drawing.lengths import Bounds, Length, Tokens
from simulator.workload.drawing.rates.base import Placement
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import read_column, read_integer_column


class TimesParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of a file, sorted."""

    path: Annotated[str, Meta(extra={"path": True}, description="CSV file, plain or .gz")]
    column: Annotated[str, Meta(description="the file's column of times in seconds")] = "arrived_at"


class Times(Placement):
    """`trace`: recorded arrivals; num_requests takes the first ones."""

    Parameters = TimesParameters

    def __init__(self, parameters: TimesParameters):
        self._times_ns = read_column(parameters.path, read_bytes(parameters.path), parameters.column,
                                     Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True))

    def arrivals_s(self, generator):
        """Return the times; nothing is drawn."""
        self._times_ns.sort()
        return self._times_ns / 1e9


class LengthsParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of a CSV file in its order: row i is the length of request i."""

    min: Annotated[Tokens, Meta(description="shorter lengths become this")] = 0
    path: Annotated[str, Meta(extra={"path": True}, description="CSV file, plain or .gz")]
    column: Annotated[str, Meta(description="the file's column of lengths")]


class Lengths(Length):
    """`trace`: recorded lengths."""

    Parameters = LengthsParameters

    def __init__(self, parameters: LengthsParameters):
        super().__init__(parameters)
        self._values = read_integer_column(parameters.path, read_bytes(parameters.path), parameters.column)

    def sample(self, generator, count):
        """Return the first lengths; nothing is drawn."""
        if count > len(self._values):
            given = self.parameters
            raise InputErrors([f"{given.path}: column {given.column} has {len(self._values)} lengths, expected "
                               f"{count}, one for each request"])
        return self._values[:count]
