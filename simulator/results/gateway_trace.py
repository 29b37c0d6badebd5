"""The gateway's part of trace.json: requests before they have a replica, and incidents of replicas.

The gateway is a process of its own. A request that waits there is an async span until it is sent to a replica; then it
is a slice of no length from which a flow arrow leads to the next iteration of that replica. One that returns since
its replica failed waits there again, and each time that it is sent is an arrow. Requests that are not served are
instants with their cause, at their last known moment. Incidents are instants of the replica. A request that moves is a
slice of no length on each of the two replicas, when the move begins and when it is there, and a flow arrow.
"""
import json
from collections.abc import Iterable
from itertools import product

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.event_text import EventText
from simulator.results.journeys import moves_of, retries_of
from simulator.results.trace_window import TraceWindow

GATEWAY = -1        # pid

_WAIT = ('{"ph":"b","cat":"gateway","name":"<name>","id":<row>,"pid":-1,"tid":0,"ts":<since_ns>},\n'
         '{"ph":"e","cat":"gateway","name":"<name>","id":<row>,"pid":-1,"tid":0,"ts":<until_ns>}')
_ARROW = ('{"ph":"X","cat":"route","name":"<name>","pid":-1,"tid":0,"ts":<sent_ns>,"dur":0.000,'
          '"args":{"replica":<replica>}},\n'
          '{"ph":"s","cat":"route","name":"%s","id":<row>,"pid":-1,"tid":0,"ts":<sent_ns>},\n'
          '{"ph":"f","cat":"route","name":"%s","id":<row>,"pid":<replica>,"tid":0,"ts":<reached_ns>}')
_INSTANT = ('{"ph":"n","cat":"gateway","name":"<name>","id":<row>,"pid":-1,"tid":0,"ts":<at_ns>,'
            '"args":{"status":"<status>","cause":"<cause>"}}')
_MOVE = ('{"ph":"X","cat":"migration","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"to":%d}},\n'
         '{"ph":"s","cat":"migration","name":"migration","id":%d,"pid":%d,"tid":0,"ts":%d.%03d},\n'
         '{"ph":"X","cat":"migration","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"from":%d}},\n'
         '{"ph":"f","bp":"e","cat":"migration","name":"migration","id":%d,"pid":%d,"tid":0,"ts":%d.%03d}')
_INCIDENT = '{"ph":"i","cat":%s,"name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"s":"p"}'

_TIMES = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")
_UNSERVED = (records.REJECTED, records.DROPPED, records.TIMED_OUT, records.FAILED)
_COLUMNS = {"name": "text", "status": "text", "cause": "text", "row": "integer", "replica": "integer",
            "number": "integer"} | dict.fromkeys(("since_ns", "until_ns", "sent_ns", "reached_ns", "at_ns"), "time")
# A wait or none, no arrow or one of two names, an instant or none: kind = 6 x wait + 2 x arrow + instant.
_WAITS, _ARROWS, _INSTANTS = (("", 0), (_WAIT, 2)), (
    ("", 0), (_ARROW % ("route", "route"), 3), (_ARROW % (2 * ("retry <number>",)), 3)), (("", 0), (_INSTANT, 1))
_STAYS = [[part for part in parts if part[0]] for parts in product(_WAITS, _ARROWS, _INSTANTS)]
STAY_TEXT = EventText([",\n".join(text for text, _ in parts) for parts in _STAYS], _COLUMNS)
STAY_EVENTS = np.array([sum(number for _, number in parts) for parts in _STAYS])


class GatewayStays:
    """The stays of requests at the gateway, each of which is a few events.

    Parameters
    ----------
    run, journeys : of the requests; from `journeys_of`.
    """

    def __init__(self, run: Run, journeys: np.ndarray):
        self._run, self._journeys, self._retries = run, journeys, retries_of(run)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the stays of some requests, in the form of `STAY_TEXT`.

        Their kinds, and the columns; in place of texts status and cause as codes.

        Parameters
        ----------
        rows : of the request table, in order; none is pending.
        """
        last = self._last(rows)
        earlier = self._earlier(rows)
        columns = {name: np.concatenate([earlier[name], last[name]]) for name in last}
        order = np.lexsort((columns["number"], columns["row"]))
        columns = {name: column[order] for name, column in columns.items()}
        arrow = np.where(columns["sent_ns"] >= 0, np.where(columns["number"] > 0, 2, 1), 0)
        kinds = 6 * (columns["until_ns"] > columns["since_ns"]) + 2 * arrow + (columns["at_ns"] >= 0)
        return kinds, columns

    def _last(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        requests = self._run.workload.requests[rows]
        admitted_ns, dispatched_ns, cause = (
            self._journeys[name][rows] for name in ("admitted_ns", "dispatched_ns", "cause"))
        deadline_ns, status = self._run.workload.demands["deadline_ns"][rows], requests["status"]
        since_ns, number = requests["arrival_ns"].copy(), np.zeros(len(rows), np.int64)
        for row, stays in self._retries.items():
            place = np.searchsorted(rows, row)
            if place < len(rows) and rows[place] == row:
                since_ns[place], number[place] = stays[-1][2], len(stays)
        is_late = status == records.TIMED_OUT
        is_sent = (dispatched_ns >= 0) & (requests["replica"] >= 0)
        ends_ns = np.where(status == records.WAITING, self._run.clock_ns, np.where(is_late, deadline_ns, since_ns))
        latest_ns = np.max([*(requests[name] for name in _TIMES), admitted_ns, dispatched_ns], axis=0)
        at_ns = np.maximum(np.maximum(latest_ns, since_ns), np.where(is_late, deadline_ns, latest_ns))
        return {
            "row": rows, "number": number, "replica": requests["replica"], "since_ns": since_ns,
            "until_ns": np.where(is_sent, dispatched_ns, ends_ns), "sent_ns": np.where(is_sent, dispatched_ns, -1),
            "reached_ns": np.maximum(dispatched_ns, requests["enqueued_ns"]),
            "at_ns": np.where(np.isin(status, _UNSERVED), at_ns, -1), "status": status, "cause": cause}

    def _earlier(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the stays that ended with a replica that failed."""
        asked, stays = set(rows.tolist()) if self._retries else (), []
        for row in self._retries.keys() & asked:
            since_ns = int(self._run.workload.requests["arrival_ns"][row])
            for number, (replica, sent_ns, returned_ns) in enumerate(self._retries[row]):
                stays.append((row, number, replica, since_ns, sent_ns, sent_ns, sent_ns, -1, 0, 0))
                since_ns = returned_ns
        names = (
            "row", "number", "replica", "since_ns", "until_ns", "sent_ns", "reached_ns", "at_ns", "status", "cause")
        return dict(zip(names, np.array(stays, np.int64).reshape(-1, len(names)).T, strict=True))


def incident_events(incidents: Iterable[tuple[int, int, str, str]], window: TraceWindow) -> Iterable[str]:
    """Yield the instants of `Run.incidents`."""
    for time_ns, replica, kind, text in incidents:
        if window.has(time_ns):
            yield _INCIDENT % (json.dumps(kind), json.dumps(text), replica, *divmod(time_ns, 1000))


def move_events(run: Run, window: TraceWindow) -> Iterable[str]:
    """Yield the slices and arrows of requests that moved."""
    for number, (row, source, destination, began_ns, ended_ns) in enumerate(moves_of(run)):
        if window.has(began_ns):
            name = json.dumps(f"request {run.workload.request_ids[row]}")
            began, ended = divmod(began_ns, 1000), divmod(ended_ns, 1000)
            yield _MOVE % (name, source, *began, destination, number, source, *began,
                           name, destination, *ended, source, number, destination, *ended)
