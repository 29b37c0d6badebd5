"""A trace larger than memory, chunk by chunk: it is read once before the run and once more while it is served.

The first reading finds all faults, the place of a window, and the number of requests; the second gives the same
requests as `Trace.columns`, in order of their arrival, in which they must lie in the file.
"""
from collections import deque
from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from simulator import registry
from simulator.domain import records
from simulator.errors import InputErrors, KeyFault
from simulator.workload import chunks
from simulator.workload.base import Workload
from simulator.workload.build import build_workload
from simulator.workload.chunked_loop import loop_of
from simulator.workload.columns import Columns
from simulator.workload.scales import scale
from simulator.workload.types.drawn_chunks import ContinuedStreams
from simulator.workload.types.trace import Trace
from simulator.workload.windows import MANY, Placement, Window, notes_on_start

FORMATS = ("csv", "azure", "burstgpt")          # their readers have `parts`


def chunked(section, seed: int) -> Workload:
    """Return the requests of an experiment, to be read in chunks.

    `workload.load.load` reads the same at once.

    section : simulator.config.experiment.Workload, of type "trace" and a format of `FORMATS`.
    seed : of pauses of slots.

    Raises
    ------
    InputErrors
        Faults of the file, by line; rows that are not in order of time; a window or an end that leaves no request.
    """
    trace, is_loop = registry.load("workload", section.type)(section.parameters), section.load.mode == "concurrency"
    survey = _Survey(trace, None if is_loop else section.parameters.duration_s)
    reading = _Reading(trace, survey)

    def draw_part(first: int, count: int) -> Workload:
        drawn = reading.draw(first, count)
        if is_loop:                                     # a slot sets it
            drawn.requests["arrival_ns"] = records.NEVER_NS
        return drawn

    rows = chunks.RequestChunks(survey.num_served, draw_part, survey.longest_text, chunks.CHUNK_ROWS, survey.num_before)
    if is_loop:
        rows.loop = loop_of(rows, section.load, section.parameters.duration_s, ContinuedStreams(seed))
    return rows.workload(survey.notes, survey.labels)


class _Course(msgspec.Struct):
    """From the time of a trace to the time of a run.

    fixed_ns : the fixed point of time_scale, on the clock of the run.
    """

    placement: Placement
    fixed_ns: int
    time_scale: float

    def inside(self, arrival_ns: np.ndarray) -> slice:
        """Return the requests inside the window."""
        start_ns, end_ns = self.placement.start_ns, self.placement.end_ns
        return slice(0 if start_ns is None else int(np.searchsorted(arrival_ns, start_ns)),
                     len(arrival_ns) if end_ns is None else int(np.searchsorted(arrival_ns, end_ns)))

    def placed(self, columns: Columns) -> Columns:
        """Return the requests inside the window, on the clock of the run."""
        columns = _rows(columns, self.inside(columns.arrival_ns))
        shifted = replace(columns, arrival_ns=columns.arrival_ns - self.placement.begin_ns)
        return scale(shifted, self.time_scale, fixed_ns=self.fixed_ns)


class _Survey:
    """The first reading.

    num_served : requests of the run. num_before : requests before the window.
    longest_text : most tokens of a request of the run, prompt and output.
    labels : names behind the codes of columns. notes : on the trace.

    Parameters
    ----------
    duration_s : requests arrive before it; None: all do.
    """

    def __init__(self, trace: Trace, duration_s: float | None):
        self._given, self._course, self._duration_s = trace.parameters, None, duration_s
        self.num_served = self.num_before = self.longest_text = self._num_after = self._num_rows = self._last_ns = 0
        self._disorder, self._top_ns = -1, np.empty(0, np.int64)
        self.labels, self.notes = {}, ()
        for columns in trace.parts():
            self.notes = columns.notes
            if len(columns):
                self._take(columns)
        if self._disorder >= 0:
            raise InputErrors([f"{trace.parameters.path}: request {self._disorder + 1} comes before the one above it; "
                               "with output.streamed requests are read when they are due: sort them by time"])
        self.notes += self._notes()
        if not self.num_served:
            raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {duration_s:g} s")])

    @property
    def course(self) -> _Course:
        """The way from the time of the trace to that of the run."""
        return self._course

    def _take(self, columns: Columns) -> None:
        given, arrival_ns = self._given, columns.arrival_ns
        self._note_disorder(arrival_ns)
        if self._course is None:
            window = Window(given.start_s, given.end_s)
            placement = Placement.of(window, int(arrival_ns[0]), given.time_origin == "trace")
            fixed_ns = 0 if given.start_s is not None else int(arrival_ns[0]) - placement.begin_ns
            self._course = _Course(placement, fixed_ns, given.time_scale)
        rows = self._course.inside(arrival_ns)
        self.num_before += rows.start
        self._num_after += len(columns) - rows.stop
        self.labels = {name: texts for name, (_, texts) in columns.labels.items()}
        if len(self._top_ns) < MANY or self._top_ns[0] == self._top_ns[-1]:
            self._top_ns = np.append(self._top_ns, arrival_ns[rows])[:2 * MANY]
        self._num_rows += len(columns)
        if self._disorder < 0:
            self._take_served(self._course.placed(columns))

    def _take_served(self, columns: Columns) -> None:
        given, count = self._given, len(columns)
        if self._duration_s is not None:
            count = int(np.searchsorted(columns.arrival_ns, round(self._duration_s * 1e9)))
        if given.max_requests:
            count = min(count, given.max_requests - self.num_served)
        texts = columns.prompt_tokens[:count] + np.maximum(columns.output_tokens[:count], 1)
        self.longest_text = max(self.longest_text, int(texts.max(initial=0)))
        self.num_served += count

    def _note_disorder(self, arrival_ns: np.ndarray) -> None:
        before_ns = self._last_ns if self._num_rows else int(arrival_ns[0])
        late = np.flatnonzero(np.diff(arrival_ns, prepend=before_ns) < 0)
        if self._disorder < 0 and len(late):
            self._disorder = self._num_rows + int(late[0])
        self._last_ns = int(arrival_ns[-1])

    def _notes(self) -> tuple[str, ...]:
        num_left = self._num_rows - self.num_before - self._num_after
        placement, path = self._course.placement, self._given.path
        return (*placement.notes(path, self.num_before, num_left, self._num_after, self._last_ns),
                *notes_on_start(path, self._top_ns[:MANY], placement.begin_ns, self._given.start_s is None))


class _Reading:
    """The second reading; `draw` is called for one chunk after the other."""

    def __init__(self, trace: Trace, survey: _Survey):
        self._parts: Iterator[Columns] = trace.parts()
        self._path, self._course, self._first_id = trace.parameters.path, survey.course, survey.num_before
        self._held: deque[Columns] = deque()

    def draw(self, first: int, count: int) -> Workload:
        """Return the next requests, `first` the row of the first one."""
        while sum(map(len, self._held)) < count:
            part = next(self._parts, None)
            if part is None:
                raise InputErrors([f"{self._path}: has fewer requests than when the run began"])
            self._held.append(self._course.placed(part))
        columns = _joined(list(self._held))
        self._held = deque([_rows(columns, slice(count, None))])
        drawn = _rows(columns, slice(count))
        built = build_workload(replace(drawn, request_ids=self._first_id + np.arange(first, first + count)))
        built.demands["tie_rank"] += first
        return built


def _joined(parts: list[Columns]) -> Columns:
    """Return the requests of all parts; labels have the codes of the last."""
    if len(parts) == 1:
        return parts[0]
    parts = [part for part in parts if len(part)] or parts[:1]
    return Columns(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in (
            "arrival_ns", "prompt_tokens", "output_tokens")),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ("priority", "max_tokens")
           if getattr(parts[0], name) is not None},
        labels={name: (np.concatenate([part.labels[name][0] for part in parts]), texts)
                for name, (_, texts) in parts[-1].labels.items()})


def _rows(columns: Columns, rows: slice) -> Columns:
    return replace(
        columns, **{name: getattr(columns, name)[rows] for name in (
            "arrival_ns", "prompt_tokens", "output_tokens", "priority", "max_tokens")
                    if getattr(columns, name) is not None},
        labels={name: (codes[rows], texts) for name, (codes, texts) in columns.labels.items()})
