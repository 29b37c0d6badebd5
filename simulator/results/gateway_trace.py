"""The gateway's part of trace.json: what happens to requests before a replica has them, and what befalls replicas.

The gateway is a process of its own. A request that waits there is an async span until it is sent to a replica; then it
is a slice of no length from which a flow arrow leads to the next iteration of that replica. One that comes back since
its replica failed waits there again, and each time that it is sent is an arrow. Those that are not served are instants
with their cause, at the last moment known of them. Incidents are instants of the replica. A request that moves is a
slice of no length on each of the two replicas, when the move begins and when it is there, and a flow arrow.
"""
import json
from collections.abc import Iterable

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.journeys import moves_of

GATEWAY = -1        # pid

_SPAN = ('{"ph":"b","cat":"gateway","name":%s,"id":%d,"pid":-1,"tid":0,"ts":%d.%03d},\n'
         '{"ph":"e","cat":"gateway","name":%s,"id":%d,"pid":-1,"tid":0,"ts":%d.%03d}')
_ARROW = ('{"ph":"X","cat":"route","name":%s,"pid":-1,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"replica":%d}},\n'
          '{"ph":"s","cat":"route","name":"%s","id":%d,"pid":-1,"tid":0,"ts":%d.%03d},\n'
          '{"ph":"f","cat":"route","name":"%s","id":%d,"pid":%d,"tid":0,"ts":%d.%03d}')
_INSTANT = ('{"ph":"n","cat":"gateway","name":%s,"id":%d,"pid":-1,"tid":0,"ts":%d.%03d,'
            '"args":{"status":"%s","cause":"%s"}}')
_MOVE = ('{"ph":"X","cat":"migration","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"to":%d}},\n'
         '{"ph":"s","cat":"migration","name":"migration","id":%d,"pid":%d,"tid":0,"ts":%d.%03d},\n'
         '{"ph":"X","cat":"migration","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"from":%d}},\n'
         '{"ph":"f","bp":"e","cat":"migration","name":"migration","id":%d,"pid":%d,"tid":0,"ts":%d.%03d}')
_INCIDENT = '{"ph":"i","cat":%s,"name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"s":"p"}'

_TIMES = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")
_UNSERVED = (records.REJECTED, records.DROPPED, records.TIMED_OUT, records.FAILED)


def gateway_events(run: Run, journeys: np.ndarray, retries: dict, part: slice) -> Iterable[str]:
    """Yield the events of some requests.

    Parameters
    ----------
    journeys, retries : what `journeys_of` and `retries_of` gave.
    part : rows of the request table.
    """
    requests, workload = run.workload.requests[part], run.workload
    latest_ns = np.max([requests[name] for name in _TIMES] + [journeys[name][part] for name in (
        "admitted_ns", "dispatched_ns")], axis=0)
    columns = (workload.request_ids[part], requests["status"].tolist(), requests["arrival_ns"].tolist(),
               requests["enqueued_ns"].tolist(), requests["replica"].tolist(), latest_ns.tolist(),
               workload.demands["deadline_ns"][part].tolist())
    ways = zip(journeys["dispatched_ns"][part].tolist(), journeys["cause"][part].tolist(), strict=True)
    for row, (request, way) in enumerate(zip(zip(*columns, strict=True), ways, strict=True), start=part.start):
        yield from _events(row, request, way, retries.get(row, ()), run.clock_ns)


def _events(row: int, request: tuple, way: tuple, retries: list[tuple], clock_ns: int) -> Iterable[str]:
    request_id, status, arrival_ns, enqueued_ns, replica, latest_ns, deadline_ns = request
    dispatched_ns, cause = way
    if status == records.PENDING:
        return
    name = json.dumps(f"request {request_id}")
    since_ns = arrival_ns                   # when it came to the gateway, the last time
    for number, (failed_replica, sent_ns, returned_ns) in enumerate(retries):
        yield from _dispatch(row, name, number, failed_replica, since_ns, sent_ns, sent_ns)
        since_ns = returned_ns
    if dispatched_ns >= 0 and replica >= 0:
        reached_ns = max(dispatched_ns, enqueued_ns)
        yield from _dispatch(row, name, len(retries), replica, since_ns, dispatched_ns, reached_ns)
    else:
        yield from _wait(row, name, since_ns, {
            records.WAITING: clock_ns, records.TIMED_OUT: deadline_ns}.get(status, since_ns))
    if status in _UNSERVED:
        at_ns = max(latest_ns, since_ns, deadline_ns if status == records.TIMED_OUT else latest_ns)
        yield _INSTANT % (name, row, *divmod(at_ns, 1000), records.STATUS_NAMES[status], records.CAUSE_NAMES[cause])


def _dispatch(row, name, number, replica, since_ns, sent_ns, reached_ns):
    yield from _wait(row, name, since_ns, sent_ns)
    flow, sent, reached = f"retry {number}" if number else "route", divmod(sent_ns, 1000), divmod(reached_ns, 1000)
    yield _ARROW % (name, *sent, replica, flow, row, *sent, flow, row, replica, *reached)


def _wait(row, name, since_ns, until_ns):
    if until_ns > since_ns:
        yield _SPAN % (name, row, *divmod(since_ns, 1000), name, row, *divmod(until_ns, 1000))


def incident_events(incidents: Iterable[tuple[int, int, str, str]]) -> Iterable[str]:
    """Yield the instants of `Run.incidents`."""
    for time_ns, replica, kind, text in incidents:
        yield _INCIDENT % (json.dumps(kind), json.dumps(text), replica, *divmod(time_ns, 1000))


def move_events(run: Run) -> Iterable[str]:
    """Yield the slices and arrows of requests that moved."""
    for number, (row, source, destination, began_ns, ended_ns) in enumerate(moves_of(run)):
        name = json.dumps(f"request {run.workload.request_ids[row]}")
        began, ended = divmod(began_ns, 1000), divmod(ended_ns, 1000)
        yield _MOVE % (name, source, *began, destination, number, source, *began,
                       name, destination, *ended, source, number, destination, *ended)
