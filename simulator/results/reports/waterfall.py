"""The phases of one request."""
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.errors import InputErrors, nearest
from simulator.results.figures.chart import Chart, Panel, Spans, number, table_of

# The instants of a request in their usual order, and the phase that ends with each.
MARKS = (("admitted_ns", "gateway: admission"), ("dispatched_ns", "gateway: queue"),
         ("enqueued_ns", "gateway: on the way"), ("scheduled_ns", "queue"), ("prefill_done_ns", "prefill"),
         ("transfer_start_ns", "transfer: waiting"), ("transfer_end_ns", "transfer"), ("first_token_ns", "prefill"),
         ("completed_ns", "decode"))
# Where another replica computed the prompt, the decoding replica sends the first token.
HANDED_OVER = tuple((field, "decode" if field == "first_token_ns" else label) for field, label in MARKS)
GATEWAY, QUEUE, PREFILL, TRANSFER, DECODE, INTERRUPTED = range(6)
STYLES = {"gateway": GATEWAY, "queue": QUEUE, "prefill": PREFILL, "transfer": TRANSFER, "decode": DECODE,
          "interrupted": INTERRUPTED}
LEG_COLUMNS = ("request", "scheduled_ns", "ended_ns", "how")
AWAY = [records.LEG_ENDS.index(name) for name in ("moved", "retried")]


class Phase(NamedTuple):
    """One phase of a request, with begin and end."""

    name: str
    start_ns: int
    end_ns: int


def row_of(result, request_id: str) -> int:
    """Return the row of the request with an id.

    Raises
    ------
    InputErrors
        There is no such request, or no table of requests.
    """
    first, known = 0, []
    try:
        for block in result.column_blocks("requests", ("request_id",)):
            ids = block["request_id"]
            if len(rows := np.flatnonzero(ids == _as_stored(request_id, ids.dtype))):
                return first + int(rows[0])
            known = known or [each.decode() if isinstance(each, bytes) else str(each) for each in ids[:1000].tolist()]
            first += len(ids)
    except LookupError as error:
        raise InputErrors([f"--request: {error.args[0]}"]) from error
    raise InputErrors([f"--request: no request {request_id!r}{nearest(request_id, known)}; there are {first:,}, "
                       f"{known[0]} first" if known else f"--request: no request {request_id!r}: there are none"])


def _as_stored(request_id: str, dtype: np.dtype) -> int | bytes | None:
    """Return an id in the type of the table; None: the table cannot hold it."""
    if dtype.kind == "S":
        return request_id.encode()
    return int(request_id) if request_id.isdecimal() and int(request_id) <= np.iinfo(dtype).max else None


def phases_of(result, row: int) -> list[Phase]:
    """Return the phases of a request, from its arrival to its last known instant.

    Their lengths sum to E2EL to the nanosecond, of a request that completed. Time between two stays at replicas, after
    a failure or on a move, is `interrupted`; a preemption leaves no instant, so its wait is part of the current phase.
    """
    request = result.request(row)
    arrival_ns = int(request["arrival_ns"])
    marks = MARKS if "prefill_done_ns" not in request.dtype.names or request["prefill_done_ns"] < 0 else HANDED_OVER
    known = [(int(request[field]), label) for field, label in marks
             if field in request.dtype.names and request[field] >= arrival_ns >= 0]
    if not known:
        return []
    end_ns = int(request["completed_ns"]) if request["completed_ns"] >= 0 else max(time for time, _ in known)
    known = sorted(((min(time, end_ns), label) for time, label in known), key=lambda mark: mark[0])
    away = [(begin, end) for begin, end in _away(result, row) if arrival_ns <= begin < end <= end_ns]
    cuts = sorted({arrival_ns, end_ns, *(time for time, _ in known), *(time for gap in away for time in gap)})
    phases: list[Phase] = []
    for start, end in pairwise(cuts):
        is_away = any(begin <= start and end <= until for begin, until in away)
        name = "interrupted" if is_away else next(label for time, label in known if time >= end)
        if phases and phases[-1].name == name:
            phases[-1] = phases[-1]._replace(end_ns=end)
        else:
            phases.append(Phase(name, start, end))
    return phases


def _away(result, row: int) -> list[tuple[int, int]]:
    """Return the times between two stays, after a failure or on a move."""
    if result.num_rows("legs") is None:
        return []
    legs = [leg for block in result.column_blocks("legs", LEG_COLUMNS) for leg in _legs_in(block, row)]
    gaps = []
    for one, other in pairwise(legs):
        if one["how"] in AWAY and one["ended_ns"] >= 0 and one["scheduled_ns"] >= 0:
            gaps.append((one["ended_ns"], other["scheduled_ns"]))
    return gaps


def _legs_in(block: dict[str, np.ndarray], row: int) -> list[dict[str, int]]:
    """Return the stays of a request that are in a block."""
    return [{name: int(column[place]) for name, column in block.items()}
            for place in np.flatnonzero(block["request"] == row)]


def waterfall(result, request_id: str) -> Chart:
    """Return the chart of the phases of one request.

    Raises
    ------
    InputErrors
        There is no such request.
    """
    row = row_of(result, request_id)
    request, phases = result.request(row), phases_of(result, row)
    start_ns = int(request["arrival_ns"])
    total_ns = sum(phase.end_ns - phase.start_ns for phase in phases)
    status = records.STATUS_NAMES[request["status"]].replace("_", " ")
    says = f"It came at {number(start_ns / 1e9)} s and is {status}" + (
        f"; the phases sum to its E2EL of {total_ns / 1e6:,.6f} ms." if request["status"] == records.COMPLETED
        else f"; its last known instant is {total_ns / 1e6:,.6f} ms later." if phases else "; nothing more is known.")
    if request["preemptions"]:
        says += (f" It lost its place {request['preemptions']} times: no table has these instants, so that time is "
                 "part of the phase in which it happened.")
    lengths = [(phase.end_ns - phase.start_ns) / 1e6 for phase in phases]
    starts = [(phase.start_ns - start_ns) / 1e6 for phase in phases]
    names = tuple(phase.name for phase in phases)
    spans = Spans(names, tuple(starts), tuple(lengths), tuple(STYLES[name.partition(":")[0]] for name in names),
                  tuple(f"{number(length)} ms" for length in lengths))
    exact = [f"{length:,.6f}" for length in lengths]
    table = table_of(("phase", "begins, ms", "takes, ms"), names, [f"{start:,.6f}" for start in starts], exact)
    return Chart(f"request_{row}", f"Request {request['request_id']}: where its time went", says, "ms since it came",
                 (Panel("", (spans,)),), table)
