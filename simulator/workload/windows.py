"""The time of a trace: where it begins, and the part of it that is served."""
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Waits, first_rows, reordered

CALENDAR_NS = 10**18            # a trace that begins later than 10**9 s (2001-09-09) counts from 1970
LONG = 1000                     # median gaps
MANY = 2**16                    # number of first arrivals for the median gap


class Window(NamedTuple):
    """A part of a trace, in its own time, s; None: from its beginning, to its end."""

    start_s: float | None = None
    end_s: float | None = None


def placed(columns: Columns, path: str, window: Window, keeps_lead: bool) -> Columns:
    """Return the requests of a part of a trace, on a clock that begins with it.

    Without a window, the clock begins at the first arrival. A request that waits for others is placed at its recorded
    time, or where its waits put it if requests took no time.

    Parameters
    ----------
    path : of the trace, for notes.
    keeps_lead : the clock begins at time 0 of the trace instead.

    Raises
    ------
    InputErrors
        No request is left; a trace with `keeps_lead` counts from 1970.
    """
    first_ns = int(_roots(columns, columns.arrival_ns).min()) + columns.origin_ns
    placement = Placement.of(window, first_ns, keeps_lead)
    kept = columns if window == Window() else _cut(columns, _recorded_ns(columns) + columns.origin_ns, placement, path)
    begin_ns = placement.begin_ns
    times_ns = _first_of(_roots(kept, kept.arrival_ns)) + columns.origin_ns
    notes = notes_on_start(path, times_ns, begin_ns, window.start_s is None)
    arrival_ns = kept.arrival_ns
    if columns.origin_ns != begin_ns:
        arrival_ns = arrival_ns + (columns.origin_ns - begin_ns)
    if columns.waits is not None:
        arrival_ns = np.maximum(arrival_ns, 0)          # a trace may give an earlier time to a request that waits
    return replace(kept, arrival_ns=arrival_ns, origin_ns=begin_ns, notes=(*kept.notes, *notes))


def _recorded_ns(columns: Columns) -> np.ndarray:
    """Return the recorded time of each request, or the earliest time that its waits allow, if that is later."""
    waits = columns.waits
    if waits is None:
        return columns.arrival_ns
    recorded_ns, followers = columns.arrival_ns.tolist(), [[] for _ in range(len(columns))]
    for source, target, delay_ns in zip(waits.sources.tolist(), waits.targets.tolist(), waits.delays_ns.tolist(),
                                        strict=True):
        followers[source].append((target, delay_ns))
    missing = np.bincount(waits.targets, minlength=len(columns)).tolist()
    pending = [row for row, count in enumerate(missing) if count == 0]
    while pending:
        row = pending.pop()
        for target, delay_ns in followers[row]:
            recorded_ns[target] = max(recorded_ns[target], recorded_ns[row] + delay_ns)
            missing[target] -= 1
            if missing[target] == 0:
                pending.append(target)
    return np.array(recorded_ns, np.int64)


def _roots(columns: Columns, own_ns: np.ndarray) -> np.ndarray:
    """Return the times of requests that wait for no other."""
    if columns.waits is None:
        return own_ns
    is_root = np.ones(len(columns), bool)
    is_root[columns.waits.targets] = False
    return own_ns[is_root]


class Placement(NamedTuple):
    """A window on the clock of a trace, ns.

    window : as given. first_ns : the first arrival of the trace. start_ns, end_ns : None: there is none.
    begin_ns : where time begins.
    """

    window: Window
    first_ns: int
    start_ns: int | None
    end_ns: int | None
    begin_ns: int

    @classmethod
    def of(cls, window: Window, first_ns: int, keeps_lead: bool) -> "Placement":
        """Return a window on the clock of a trace; other parameters as of `placed`.

        Raises
        ------
        InputErrors
            A trace with `keeps_lead` counts from 1970.
        """
        if keeps_lead and first_ns >= CALENDAR_NS:
            raise InputErrors([KeyFault('workload.time_origin: "trace" keeps the time before the first arrival, and '
                                        "this trace counts from 1970")])
        start_ns, end_ns = (_on_clock(each, first_ns) for each in window)
        begin_ns = start_ns if start_ns is not None else 0 if keeps_lead else first_ns
        return cls(window, first_ns, start_ns, end_ns, begin_ns)

    def notes(self, path: str, num_before: int, num_left: int, num_after: int, last_ns: int) -> tuple[str, ...]:
        """Return a note on the requests outside; last_ns : the last arrival of the trace.

        Raises
        ------
        InputErrors
            No request is inside.
        """
        given = {key: value for key, value in self.window._asdict().items() if value is not None}
        if not given:
            return ()
        asked = " and ".join(f"{key} = {value:.15g}" for key, value in given.items())
        if not num_left:
            raise InputErrors([KeyFault(f"workload.{next(iter(given))}: with {asked} no request of {path} is left; "
                                        f"they come from {self.first_ns / 1e9:.15g} to {last_ns / 1e9:.15g} s")])
        return (f"{path}: {asked}: of {num_before + num_left + num_after} requests {num_before} are before and "
                f"{num_after} after that, and were left out.",)


def _cut(columns: Columns, own_ns: np.ndarray, placement: Placement, path: str) -> Columns:
    """Return the requests inside a window."""
    before = np.zeros(len(own_ns), bool) if placement.start_ns is None else own_ns < placement.start_ns
    after = np.zeros(len(own_ns), bool) if placement.end_ns is None else own_ns >= placement.end_ns
    is_left = ~(before | after)
    notes = placement.notes(path, int(before.sum()), int(is_left.sum()), int(after.sum()), int(own_ns.max()))
    kept = columns if is_left.all() else _only(columns, own_ns, is_left)
    return replace(kept, notes=(*kept.notes, *notes))


def _on_clock(time_s: float | None, first_ns: int) -> int | None:
    """Return a time of the trace in ns.

    If the trace counts from 1970 and the time does not, it counts from the first arrival.
    """
    if time_s is None:
        return None
    is_since_first = first_ns >= CALENDAR_NS and time_s * 1e9 < CALENDAR_NS
    return round(time_s * 1e9) + (first_ns if is_since_first else 0)


def _only(columns: Columns, own_ns: np.ndarray, is_left: np.ndarray) -> Columns:
    """Return some requests; requests that waited for others come at their own times, or after the remaining ones."""
    waits = columns.waits
    if waits is not None:
        columns = replace(columns, arrival_ns=own_ns - columns.origin_ns,
                          waits=_shifted(waits, own_ns, is_left))
    order = np.concatenate([np.flatnonzero(is_left), np.flatnonzero(~is_left)])
    kept = first_rows(replace(reordered(columns, order), most=int(is_left.sum())))
    if waits is None:
        return kept
    plays = np.unique(kept.waits.plays, return_inverse=True)[1]
    return replace(kept, waits=replace(kept.waits, plays=plays))


def _shifted(waits: Waits, own_ns: np.ndarray, is_left: np.ndarray) -> Waits:
    """Return the waits with times since a play's start shortened where the play begins later."""
    if waits.not_before_ns is None:
        return waits
    starts = np.full((2, int(waits.plays.max()) + 1), np.iinfo(np.int64).max)
    np.minimum.at(starts[0], waits.plays, own_ns)
    np.minimum.at(starts[1], waits.plays[is_left], own_ns[is_left])
    later_ns = np.where(is_left, (starts[1] - starts[0])[waits.plays], 0)
    return replace(waits, not_before_ns=np.maximum(waits.not_before_ns - later_ns, 0))


def _first_of(times_ns: np.ndarray) -> np.ndarray:
    """Return the first `MANY` times, ascending, or all times if the first ones are one instant."""
    first_ns = times_ns
    if len(times_ns) > MANY:
        is_ascending = np.all(times_ns[1:] >= times_ns[:-1])
        first_ns = times_ns[:MANY] if is_ascending else np.partition(times_ns, MANY)[:MANY]
    first_ns = np.sort(first_ns)
    return first_ns if first_ns[0] < first_ns[-1] else np.sort(times_ns)


def notes_on_start(path: str, times_ns: np.ndarray, begin_ns: int, is_default: bool) -> tuple[str, ...]:
    """Return notes if a trace begins with a gap of over `LONG` median gaps.

    The gap may be before its first arrival, or after it.

    times_ns : the first ones, ascending, in the trace's own time, as `begin_ns`.
    is_default : the trace begins there by default, not by a key.
    """
    gaps_ns = np.diff(times_ns)
    gaps_ns = gaps_ns[gaps_ns > 0]
    if not len(gaps_ns):
        return ()
    median_ns, notes = float(np.median(gaps_ns)), ()
    long = f"more than {LONG:,} times the median gap of {median_ns / 1e9:.6g} s"
    lead_ns, idle_ns = int(times_ns[0]) if begin_ns and is_default else 0, int(times_ns[0]) - begin_ns
    if idle_ns > LONG * median_ns:
        notes = (f"{path}: no request comes in the first {idle_ns / 1e9:.6g} s, {long}; throughput and cost count "
                 "them.",)
    elif lead_ns > LONG * median_ns:
        notes = (f"{path}: its first request comes at {lead_ns / 1e9:.15g} s, {long}; time begins there.",)
    first_gap_ns = int(times_ns[np.searchsorted(times_ns, times_ns[0], "right")] - times_ns[0])
    if first_gap_ns > LONG * median_ns:
        notes += (f"{path}: after its first request none comes for {first_gap_ns / 1e9:.6g} s, {long}; start_s leaves "
                  "that out.",)
    return notes
