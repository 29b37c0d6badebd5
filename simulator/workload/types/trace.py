"""`trace`: requests read from a file."""
import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain.sessions import TraceSessions
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns, in_arrival_order
from simulator.workload.history import composed
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.files import PIECE_BYTES, files_in, read_bytes, read_pieces
from simulator.workload.scales import cut, scale
from simulator.workload.windows import Window, placed

Scale = Annotated[float, Meta(gt=0, le=1e9)]
Time = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)]


class TraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace, and how to stretch it; the keys of its format are in this table, too."""

    path: Annotated[str, Meta(extra={"path": True}, description=(
        "the file, plain or .gz; for formats with many files their directory"))]
    format: Annotated[str, Meta(description="format of the file")] = "csv"
    max_bytes: Annotated[int, Meta(ge=0, le=2**50, description=(
        "most bytes of text in a file, decompressed; 0: no limit for a plain file, for a compressed one a hundred "
        "times its size, or 256 MiB"))] = 0
    max_requests: Annotated[int, Meta(ge=0, le=2**31 - 1, description="use the first ones only; 0: all")] = 0
    start_s: Annotated[Time | None, Meta(description=(
        "only requests from this time on, in the trace's own time, and time begins there; of a trace that counts from "
        "1970: a time of that kind, or seconds since its first arrival"))] = None
    end_s: Annotated[Time | None, Meta(description="only requests before this time, counted as start_s")] = None
    time_origin: Annotated[Literal["first_arrival", "trace"], Meta(description=(
        "beginning of time without start_s: the first arrival, or 0 of the trace, idle until then"))] = "first_arrival"
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "all requests come before this time"))] = None
    time_scale: Annotated[Scale, Meta(description="multiplies the time between arrivals")] = 1.0
    prefill_scale: Annotated[Scale, Meta(description="multiplies prompt lengths, at least 1 token remains")] = 1.0
    decode_scale: Annotated[Scale, Meta(description=(
        "multiplies output lengths and max_tokens; at least 1 token remains of any"))] = 1.0
    max_text_tokens: Annotated[Annotated[int, Meta(ge=2, le=MAX_TOKENS)] | None, Meta(description=(
        "limit of prompt and output together, after scaling: the excess is cut off the prompt, of which at least 1 "
        "token remains; Vidur's max_tokens, there 4096"))] = None
    sessions: Annotated[TraceSessions | bool, Meta(description=(
        "how rounds of a session follow each other; burstgpt: whether requests have their sessions"))] = TraceSessions()
    parameters: Annotated[Any, Meta(extra={"kind": "trace_format"})]

    def __post_init__(self):
        if self.start_s is not None and self.end_s is not None and self.end_s <= self.start_s:
            raise ValueError(f"end_s = {self.end_s:g}: expected more than start_s = {self.start_s:g}")
        if self.start_s is not None and self.time_origin != "first_arrival":
            raise ValueError("time_origin: time begins at start_s; leave one of both out")


class Trace:
    """A recorded workload.

    The reader of a format is built as `Reader(parameters)` and has one method, `read(path, data) -> Columns`: `data` is
    the uncompressed content of the file, and `path` its name in messages. Optional members:

    - With `SUFFIXES` and `read_files(files) -> Columns`, `files` pairs of path and data, it reads directories:
      all files in them with names that end in a suffix, or a suffix and .gz, by name.
    - With `takes_sessions = True` it is built as `Reader(parameters, sessions)`, a `TraceSessions`; with
      `names_sessions = True` a bool.
    - With `read_pieces(path, pieces)` it gets the content of a large file in pieces of whole rows.
    - With `parts(path, pieces) -> Iterator[Columns]` a trace larger than memory can be served ([output] streamed): the
      requests of each piece at the times of the file, then a part without requests that has the notes.
    """

    Parameters = TraceParameters

    def __init__(self, parameters: TraceParameters):
        self.parameters = parameters
        kind = registry.load("trace_format", parameters.format)
        self._has_rounds = getattr(kind, "takes_sessions", False)
        sessions, takes_bool = parameters.sessions, getattr(kind, "names_sessions", False)
        if isinstance(sessions, bool) != takes_bool and sessions != TraceSessions():
            raise InputErrors([KeyFault(f'workload.sessions: format = "{parameters.format}" expects '
                                        f"{'true or false' if takes_bool else 'a table'}")])
        if takes_bool:
            self.reader = kind(parameters.parameters, sessions is True)
        else:
            self.reader = kind(parameters.parameters, *[sessions] * self._has_rounds)

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the requests; none is random.

        Raises
        ------
        InputErrors
            Faults of the file, by line; a scale that makes a number too large.
        """
        given = self.parameters
        self._check_sessions()
        columns = self._read(given.path)
        if options.arrivals and not columns.has_times:
            raise InputErrors([KeyFault(
                f'workload.load.mode: "timestamps" needs times, which a trace of format = "{given.format}" does not '
                'have; "lanes" and "concurrency" need none')])
        columns = self._with_lengths(columns)
        if columns.adds_to is not None:
            columns = composed(columns, given.sessions, options.longest_text and options.longest_text())
        columns = self._placed(columns)
        if columns.waits is None and options.arrivals:
            columns = in_arrival_order(columns)
        columns = scale(columns, given.time_scale, fixed_ns=None if given.start_s is None else 0)
        return replace(columns, most=given.max_requests)

    def parts(self) -> Iterator[Columns]:
        """Yield the requests with their lengths piece by piece, at the times of the file.

        Raises
        ------
        InputErrors
            As `columns`.
        """
        given = self.parameters
        self._check_sessions()
        for columns in self.reader.parts(given.path, read_pieces(given.path, PIECE_BYTES, given.max_bytes)):
            yield self._with_lengths(columns)

    def _with_lengths(self, columns: Columns) -> Columns:
        given = self.parameters
        columns = scale(columns, prefill=given.prefill_scale, decode=given.decode_scale)
        return columns if given.max_text_tokens is None else cut(columns, given.max_text_tokens)

    def _placed(self, columns: Columns) -> Columns:
        """Return the requests of the window, on its clock."""
        given = self.parameters
        window = Window(given.start_s, given.end_s)
        if columns.has_times:
            return placed(columns, given.path, window, given.time_origin == "trace")
        faults = [KeyFault(f'workload.{key}: a trace of format = "{given.format}" has no times; leave it out')
                  for key in ("start_s", "end_s", "time_origin")
                  if getattr(given, key) not in (None, "first_arrival")]
        if faults:
            raise InputErrors(faults)
        return columns

    def _check_sessions(self) -> None:
        """Refuse keys of [workload.sessions] that the format does not read."""
        given = self.parameters.sessions
        if isinstance(given, bool):
            return
        of_format = f'format = "{self.parameters.format}"'
        faults = [KeyFault(f"workload.sessions.{key}: {of_format} does not read it") for key in ("gap", "accumulate")
                  if getattr(given, key) != getattr(TraceSessions(), key) and not self._has_rounds]
        if not given.accumulate:
            reason = ("rows have whole prompts unless accumulate = true" if self._has_rounds else
                      "a trace in it has whole prompts, or turns whose outputs are as long as declared and of which "
                      "nothing says what is reasoning")
            faults += [KeyFault(f"workload.sessions.{key}: {of_format}: {reason}") for key in given.given_keys()]
        if faults:
            raise InputErrors(faults)

    def _read(self, path: str) -> Columns:
        most = self.parameters.max_bytes
        if not os.path.isdir(path) and hasattr(self.reader, "read_pieces"):
            return self.reader.read_pieces(path, read_pieces(path, max_bytes=most))
        if not os.path.isdir(path):
            return self.reader.read(path, read_bytes(path, most))
        if not hasattr(self.reader, "read_files"):
            raise InputErrors([f'{path}: a directory; format = "{self.parameters.format}" reads one file'])
        return self.reader.read_files(files_in(path, self.reader.SUFFIXES, most))
