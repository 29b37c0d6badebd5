"""trace.json: the run in Chrome's Trace Event format, for chrome://tracing and https://ui.perfetto.dev.

A process is a replica (pid is its number), a thread a pipeline stage. Each iteration is a complete event in each stage,
from when it begins to execute there, with its composition as args; counters show KV blocks and requests; each request
is an async span with its phases inside. Process -1 is the gateway (gateway_trace.py); without one, requests that no
replica got are its instants. Times are microseconds with three decimals: nothing is rounded.

Format: "Trace Event Format", Google, 2016.
"""
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.gateway_trace import GATEWAY, gateway_events, incident_events, move_events
from simulator.results.journeys import journeys_of, retries_of
from simulator.results.uptime import incidents_of

_PROCESS = ('{"ph":"M","name":"process_name","pid":%d,"args":{"name":"%s"}},\n'
            '{"ph":"M","name":"process_sort_index","pid":%d,"args":{"sort_index":%d}}')
_THREAD = '{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":"stage %d"}}'
_ITERATION = ('{"ph":"X","cat":"iteration","name":"%s","pid":%d,"tid":%d,"ts":%d.%03d,"dur":%d.%03d,"args":{'
              '"sequences":%d,"prefill_tokens":%d,"decode_tokens":%d,"context_tokens":%d,"preempted":%d}}')
_COUNTERS = ('{"ph":"C","name":"KV blocks","pid":%d,"ts":%d.%03d,"args":{"used":%d}},\n'
             '{"ph":"C","name":"requests","pid":%d,"ts":%d.%03d,"args":{"running":%d,"waiting":%d}}')
_SPAN = ('{"ph":"b","cat":"request","name":%s,"id":%d,"pid":%d,"tid":0,"ts":%d.%03d%s},\n'
         '{"ph":"e","cat":"request","name":%s,"id":%d,"pid":%d,"tid":0,"ts":%d.%03d}')
_INSTANT = '{"ph":"n","cat":"request","name":%s,"id":%d,"pid":%d,"tid":0,"ts":%d.%03d,"args":{"status":"%s"}}'

_REQUEST_COLUMNS = ("replica", "status", "arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")


class ChromeTrace:
    """Write trace.json while the simulation runs; use it as a context.

    Parameters
    ----------
    path : the file, replaced if it exists.
    """

    def __init__(self, path: Path):
        self._file = open(path, "w", encoding="utf-8", newline="\n")    # noqa: SIM115 -- until __exit__
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        self._separator = ""
        self._threads = set()       # (replica, stage)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def iterations(self, rows: np.ndarray) -> None:
        """Append rows of `records.ITERATION`."""
        columns = [rows[name].tolist() for name in tables.ITERATION_FIELDS]
        self._threads.update(zip(*columns[:2], strict=True))
        self._write(event for row in zip(*columns, strict=True) for event in _iteration_events(row))

    def finish(self, run: Run) -> None:
        """Append requests, incidents, moves and names, and end the file.

        The spans of unfinished requests end where the clock stopped.
        """
        workload, requests, journeys = run.workload, run.workload.requests, journeys_of(run)
        retries = retries_of(run)
        for first in range(0, len(requests), tables.BLOCK_ROWS):
            part = slice(first, first + tables.BLOCK_ROWS)
            columns = (workload.request_ids[part], workload.demands["deadline_ns"][part].tolist(),
                       *(requests[name][part].tolist() for name in _REQUEST_COLUMNS))
            self._write(event for row, request in enumerate(zip(*columns, strict=True), start=first)
                        for event in _request_events(row, request, run.clock_ns, journeys is not None))
            if journeys is not None:
                self._write(gateway_events(run, journeys, retries, part))
        self._write(incident_events(incidents_of(run)))
        self._write(move_events(run))
        outside = "" if (requests["replica"] >= 0).all() else "not routed"
        self._write(self._names(len(run.replicas), outside if journeys is None else "gateway"))
        self._file.write("\n]}\n")

    def _names(self, num_replicas: int, outside: str) -> Iterable[str]:
        """Name processes and threads; `outside`: the process of requests that are in no replica, if there is one."""
        for replica in range(num_replicas):
            yield _PROCESS % (replica, f"replica {replica}", replica, replica)
        if outside:
            yield _PROCESS % (GATEWAY, outside, GATEWAY, num_replicas if outside == "not routed" else GATEWAY)
        for replica, stage in sorted(self._threads):
            yield _THREAD % (replica, stage, stage)

    def _write(self, events: Iterable[str]) -> None:
        text = ",\n".join(events)
        if text:
            self._file.write(self._separator + text)
            self._separator = ",\n"


def _iteration_events(row: tuple) -> Iterable[str]:
    (replica, stage, start_ns, duration_ns, sequences, prefill_tokens, decode_tokens, context_tokens, waiting, running,
     used_blocks, preempted, begin_ns) = row
    kind = "decode" if not prefill_tokens else "mixed" if decode_tokens else "prefill"
    yield _ITERATION % (kind, replica, stage, *divmod(begin_ns, 1000), *divmod(duration_ns, 1000), sequences,
                        prefill_tokens, decode_tokens, context_tokens, preempted)
    if stage == 0:
        start = divmod(start_ns, 1000)
        yield _COUNTERS % (replica, *start, used_blocks, replica, *start, running, waiting)


def _request_events(row: int, request: tuple, clock_ns: int, has_gateway: bool) -> Iterable[str]:
    request_id, deadline_ns, replica, status, *times_ns = request
    if status == records.PENDING:
        return
    name, status_name = json.dumps(f"request {request_id}"), records.STATUS_NAMES[status]
    arrival_ns, enqueued_ns, scheduled_ns, first_token_ns, _ = times_ns
    if replica < 0:
        if has_gateway:
            return
        yield _INSTANT % (name, row, replica, *divmod(arrival_ns, 1000), status_name)
        return
    ends = {records.WAITING: clock_ns, records.RUNNING: clock_ns, records.TIMED_OUT: deadline_ns}
    end_ns = max(ends.get(status, 0), *times_ns)
    yield _span(name, row, replica, arrival_ns, end_ns, f',"args":{{"status":"{status_name}"}}')
    for phase, start_ns, next_ns in (("queue", enqueued_ns, scheduled_ns), ("prefill", scheduled_ns, first_token_ns),
                                     ("decode", first_token_ns, end_ns)):
        if start_ns >= 0:
            yield _span(f'"{phase}"', row, replica, start_ns, next_ns if next_ns >= 0 else end_ns)


def _span(name, row, replica, start_ns, end_ns, args=""):
    start, end = divmod(start_ns, 1000), divmod(end_ns, 1000)
    return _SPAN % (name, row, replica, *start, args, name, row, replica, *end)
