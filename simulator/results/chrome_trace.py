"""trace.json: the run in Chrome's Trace Event format, for chrome://tracing and https://ui.perfetto.dev.

A process is a replica (pid is its number), a thread a pipeline stage. Each iteration is a complete event in each stage,
from when it begins to execute there, with its composition as args; counters show KV blocks and requests; each request
is an async span with its phases inside. Process -1 is the gateway (gateway_trace.py); without one, requests without
a replica are its instants. Times are microseconds with three decimals: nothing is rounded. Of a long run a window is
shown, or as much from its beginning as the most events allow; omitted events are counted.

Format: "Trace Event Format", Google, 2016.
"""
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.event_text import EventText
from simulator.results.gateway_trace import GATEWAY, STAY_EVENTS, STAY_TEXT, GatewayStays, incident_events, move_events
from simulator.results.journeys import journeys_of
from simulator.results.trace_window import TraceWindow
from simulator.results.uptime import incidents_of

EVENTS_AT_ONCE = 8192           # formatted, in some megabytes

_PROCESS = ('{"ph":"M","name":"process_name","pid":%d,"args":{"name":"%s"}},\n'
            '{"ph":"M","name":"process_sort_index","pid":%d,"args":{"sort_index":%d}}')
_THREAD = '{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":"stage %d"}}'
_ITERATION = ('{"ph":"X","cat":"iteration","name":"<kind>","pid":<replica>,"tid":<stage>,"ts":<begin_ns>,'
              '"dur":<duration_ns>,"args":{"sequences":<sequences>,"prefill_tokens":<prefill_tokens>,'
              '"decode_tokens":<decode_tokens>,"context_tokens":<context_tokens>,"preempted":<preempted>}}')
_COUNTERS = ('{"ph":"C","name":"KV blocks","pid":<replica>,"ts":<start_ns>,"args":{"used":<used_blocks>}},\n'
             '{"ph":"C","name":"requests","pid":<replica>,"ts":<start_ns>,"args":{"running":<running>,'
             '"waiting":<waiting>}}')
_SPAN = ('{"ph":"b","cat":"request","name":"%s","id":<row>,"pid":<replica>,"tid":0,"ts":<%s>%s},\n'
         '{"ph":"e","cat":"request","name":"%s","id":<row>,"pid":<replica>,"tid":0,"ts":<%s>}')
_INSTANT = ('{"ph":"n","cat":"request","name":"<name>","id":<row>,"pid":<replica>,"tid":0,"ts":<arrival_ns>,'
            '"args":{"status":"<status>"}}')

_DECODE, _PREFILL, _MIXED = range(3)
_KINDS = (b"decode", b"prefill", b"mixed")
_OF_ITERATION = {"kind": "text"} | {
    name: "time" if name.endswith("_ns") else "integer" for name in tables.ITERATION_FIELDS}
_ITERATION_TEXT = EventText([f"{_ITERATION},\n{_COUNTERS}", _ITERATION], _OF_ITERATION)     # of the first stage, others
_ITERATION_EVENTS = np.array([3, 1])
_TIMES = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns")
_PHASES = (("queue", "enqueued_ns", "queue_end_ns"), ("prefill", "scheduled_ns", "prefill_end_ns"),
           ("decode", "first_token_ns", "end_ns"))
_OF_REQUEST = {"name": "text", "status": "text", "row": "integer", "replica": "integer"} | dict.fromkeys((
    "arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "queue_end_ns", "prefill_end_ns", "end_ns"), "time")
_STATUSES = tuple(name.encode() for name in records.STATUS_NAMES)
_CAUSES = tuple(name.encode() for name in records.CAUSE_NAMES)
_AN_INSTANT, _NOTHING = 8, 9    # kinds below them: a span, and a bit for each phase
_REQUEST_EVENTS = np.array([*(2 + 2 * kind.bit_count() for kind in range(_AN_INSTANT)), 1, 0])


def _request_text() -> EventText:
    whole = _SPAN % ("<name>", "arrival_ns", ',"args":{"status":"<status>"}', "<name>", "end_ns")
    phases = [_SPAN % (name, begin, "", name, end) for name, begin, end in _PHASES]
    return EventText([*(",\n".join([whole, *(phase for bit, phase in enumerate(phases) if kind >> bit & 1)])
                        for kind in range(_AN_INSTANT)), _INSTANT], _OF_REQUEST)


_REQUEST_TEXT = _request_text()


class ChromeTrace:
    """Write trace.json while the simulation runs; use it as a context.

    Parameters
    ----------
    path : the file, replaced if it exists.
    window : the part to show; names, incidents and moves do not count as events. None: all.
    """

    def __init__(self, path: Path, window: TraceWindow | None = None):
        self._file = open(path, "wb")       # noqa: SIM115 -- until __exit__
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        self._separator = b""
        self._threads = set()       # (replica, stage)
        self._window = window or TraceWindow()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def iterations(self, rows: np.ndarray) -> None:
        """Append rows of `records.ITERATION`."""
        rows = rows[self._window.of_iterations(rows["begin_ns"], _ITERATION_EVENTS[(rows["stage"] > 0).astype(int)])]
        for first in range(0, len(rows), EVENTS_AT_ONCE):
            part = rows[first:first + EVENTS_AT_ONCE]
            columns = {name: part[name] for name in tables.ITERATION_FIELDS}
            columns["kind"] = np.where(part["prefill_tokens"] == 0, _DECODE,
                                       np.where(part["decode_tokens"] != 0, _MIXED, _PREFILL))
            self._write(_ITERATION_TEXT, part["stage"] > 0, columns, _KINDS)
            threads = np.unique(part["replica"].astype(np.int64) << 32 | part["stage"])
            self._threads.update(zip((threads >> 32).tolist(), (threads & 0xFFFFFFFF).tolist(), strict=True))

    def finish(self, run: Run) -> list[str]:
        """Append requests, incidents, moves and names, and end the file.

        Return notes on omitted events.
        The spans of unfinished requests end where the clock stopped.
        """
        requests, journeys = run.workload.requests, journeys_of(run)
        stays = None if journeys is None else GatewayStays(run, journeys)
        for first in range(0, len(requests), tables.BLOCK_ROWS):
            has_come = records.has_come(requests["status"][first:first + tables.BLOCK_ROWS])
            self._write_requests(run, first + np.flatnonzero(has_come), stays)
        self._write_texts(incident_events(incidents_of(run), self._window))
        self._write_texts(move_events(run, self._window))
        for part in run.parts:
            self._write_texts(part.events(run, self._window))
        outside = "" if (requests["replica"] >= 0).all() else "not routed"
        self._write_texts(self._names(len(run.replicas), outside if journeys is None else "gateway"))
        self._file.write(b"\n]}\n")
        return self._window.notes()

    def _write_requests(self, run: Run, rows: np.ndarray, stays: GatewayStays | None) -> None:
        kinds, columns = _spans(run, rows, stays is not None)
        num_events = _REQUEST_EVENTS[kinds]
        if stays is not None:
            stay_kinds, stay_columns = stays.of(rows)
            places = np.searchsorted(rows, stay_columns["row"])
            num_events = num_events + np.bincount(places, STAY_EVENTS[stay_kinds], len(rows)).astype(np.int64)
        is_shown = self._window.of_requests(columns["arrival_ns"], columns["end_ns"], num_events)
        self._write_named(run, _REQUEST_TEXT, kinds, columns, is_shown & (kinds != _NOTHING))
        if stays is not None:
            self._write_named(run, STAY_TEXT, stay_kinds, stay_columns,
                              is_shown[places] & (STAY_EVENTS[stay_kinds] > 0))

    def _write_named(self, run: Run, text: EventText, kinds, columns, is_shown) -> None:
        """Write events of requests, with their names, status and cause."""
        chosen = np.flatnonzero(is_shown)
        for first in range(0, len(chosen), EVENTS_AT_ONCE):
            part = chosen[first:first + EVENTS_AT_ONCE]
            of_part = {name: column[part] for name, column in columns.items()}
            rows, of_part["name"] = np.unique(of_part["row"], return_inverse=True)
            texts = [json.dumps(f"request {run.workload.request_ids[row]}")[1:-1].encode() for row in rows.tolist()]
            of_part["status"] = of_part["status"].astype(np.int64) + len(texts)
            texts += _STATUSES
            if "cause" in of_part:
                of_part["cause"] = of_part["cause"].astype(np.int64) + len(texts)
                texts += _CAUSES
            self._write(text, kinds[part], of_part, texts)

    def _names(self, num_replicas: int, outside: str) -> Iterable[str]:
        """Name processes and threads; `outside`: the process of requests without a replica, if there is one."""
        for replica in range(num_replicas):
            yield _PROCESS % (replica, f"replica {replica}", replica, replica)
        if outside:
            yield _PROCESS % (GATEWAY, outside, GATEWAY, num_replicas if outside == "not routed" else GATEWAY)
        for replica, stage in sorted(self._threads):
            yield _THREAD % (replica, stage, stage)

    def _write(self, text: EventText, kinds: np.ndarray, columns: dict, texts: Sequence[bytes]) -> None:
        values = np.empty((len(kinds), len(text.columns)), np.int64)
        for number, name in enumerate(text.columns):
            values[:, number] = columns[name]
        self._append(text.write(kinds.astype(np.int8), values, texts))

    def _write_texts(self, events: Iterable[str]) -> None:
        self._append(",\n".join(events).encode())

    def _append(self, text) -> None:
        if len(text):
            self._file.write(self._separator)
            self._file.write(text)
            self._separator = b",\n"


def _spans(run: Run, rows: np.ndarray, has_gateway: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the kinds of events of some requests, and the columns of `_REQUEST_TEXT` but the names."""
    requests = run.workload.requests[rows]
    columns = {name: requests[name] for name in (
        "status", "replica", "arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns")}
    status = requests["status"]
    end_ns = np.where((status == records.WAITING) | (status == records.RUNNING), run.clock_ns, np.where(
        status == records.TIMED_OUT, run.workload.demands["deadline_ns"][rows], 0))
    for name in (*_TIMES, "completed_ns"):
        end_ns = np.maximum(end_ns, requests[name])
    kinds = sum((requests[name] >= 0).astype(np.int64) << bit for bit, name in enumerate(_TIMES[1:]))
    kinds[requests["replica"] < 0] = _NOTHING if has_gateway else _AN_INSTANT
    columns |= {"row": rows, "end_ns": end_ns,
                "queue_end_ns": np.where(requests["scheduled_ns"] >= 0, requests["scheduled_ns"], end_ns),
                "prefill_end_ns": np.where(requests["first_token_ns"] >= 0, requests["first_token_ns"], end_ns)}
    return kinds, columns
