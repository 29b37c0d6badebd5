"""`trace`: requests read from a file."""
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload.columns import Columns, in_arrival_order
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.files import read_bytes, read_pieces
from simulator.workload.scales import scale
from simulator.workload.wanted import WANTED, Wanted

Scale = Annotated[float, Meta(gt=0, le=1e9)]


class TraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace, and how to stretch it; the keys of its format stand in the same table."""

    path: Annotated[str, Meta(description="the file, plain or .gz", extra={"path": True})]
    format: Annotated[str, Meta(description="how it is written")] = "csv"
    max_requests: Annotated[int, Meta(ge=0, le=2**31 - 1, description="use the first ones only; 0: all")] = 0
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "no request comes at or after this time"))] = None
    time_scale: Annotated[Scale, Meta(description="multiplies the time between arrivals")] = 1.0
    prefill_scale: Annotated[Scale, Meta(description="multiplies prompt lengths, at least 1 token remains")] = 1.0
    decode_scale: Annotated[Scale, Meta(description=(
        "multiplies output lengths and max_tokens; at least 1 token remains where there was one"))] = 1.0
    parameters: Annotated[Any, Meta(extra={"kind": "trace_format"})]


class Trace:
    """A recorded workload.

    The reader of a format is built as `Reader(parameters)` and has a method `read(path, data) -> Columns`: `data` is
    the uncompressed content of the file, and `path` is what messages call it. One of large files may have a method
    `read_pieces(path, pieces)` besides, which gets the same content in pieces of whole rows.
    """

    Parameters = TraceParameters

    def __init__(self, parameters: TraceParameters):
        self.parameters = parameters
        self.reader = registry.load("trace_format", parameters.format)(parameters.parameters)

    def columns(self, streams: RandomStreams, wanted: Wanted = WANTED) -> Columns:
        """Return the requests; nothing in them is random.

        Raises
        ------
        InputErrors
            What is wrong with the file, by line; a scale that makes a number too large.
        """
        given = self.parameters
        if hasattr(self.reader, "read_pieces"):
            columns = self.reader.read_pieces(given.path, read_pieces(given.path))
        else:
            columns = self.reader.read(given.path, read_bytes(given.path))
        if columns.waits is None:
            columns = in_arrival_order(columns)
        columns = scale(columns, given.time_scale, given.prefill_scale, given.decode_scale)
        return replace(columns, most=given.max_requests)
