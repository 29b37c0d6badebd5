"""From columns and [workload.load] to requests that come one after the other, or as a script says."""
import math
from dataclasses import replace

import numpy as np

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, first_rows, in_arrival_order, nearest, reordered
from simulator.workload.limits import MISSING
from simulator.workload.recycling import begun
from simulator.workload.script import Edges, Group, Script


def workload_of(columns: Columns, load: Load, duration_s: float | None, streams: RandomStreams) -> Workload:
    """Return the requests as the engine takes them.

    Parameters
    ----------
    duration_s : nobody comes then or later; None: all come.
    """
    if columns.waits is None and load == Load() and duration_s is None:
        return build_workload(in_arrival_order(columns))
    columns, script = script_of(columns, load, duration_s, streams)
    built = build_workload(columns)
    built.requests["arrival_ns"] = records.NEVER_NS
    gives_up = script.timeout_ns is not None or script.cancel_ns is not None
    built.demands["deadline_ns"] = 0 if gives_up else records.NEVER_NS      # set when each comes
    return replace(built, script=script, scheduled_ns=np.full(len(built), records.NEVER_NS))


def script_of(columns: Columns, load: Load, duration_s: float | None, streams: RandomStreams) -> tuple[Columns, Script]:
    """Return the requests by play, in the order in which these come, and the script."""
    plays = np.arange(len(columns)) if columns.waits is None else columns.waits.plays
    is_root = np.ones(len(columns), bool)
    if columns.waits is not None:
        is_root[columns.waits.targets] = False
    start_ns = _starts(columns, plays, is_root)
    order = _order(plays, start_ns if load.mode == "timestamps" else np.zeros_like(start_ns))
    columns, is_root, plays = reordered(columns, order), is_root[order], plays[order]
    if columns.most:
        columns, is_root, plays = first_rows(columns), is_root[:columns.most], plays[:columns.most]
    begins = _begins(plays)
    start_ns = start_ns[plays[begins[:-1]]]
    left = begins[-2] + np.flatnonzero(is_root[begins[-2]:])
    if len(left):           # the last play may have been cut
        start_ns[-1] = columns.arrival_ns[left].min()
    plays = np.repeat(np.arange(len(start_ns)), np.diff(begins))
    offset_ns = _offsets(columns, is_root, begins, start_ns)
    late_ns = None
    if load.snapshot == "uniform":
        columns, plays, offset_ns, late_ns = begun(columns, plays, offset_ns, load.lanes, streams)
        begins = _begins(plays)
    has_plays = len(begins) <= len(plays)
    waits = columns.waits
    return columns, Script(
        _groups(load, duration_s, len(begins) - 1, late_ns),
        start_ns if load.mode == "timestamps" else np.zeros_like(start_ns),
        play_begins=begins if has_plays else None, offset_ns=offset_ns if has_plays else None,
        edges=None if waits is None or not len(waits.sources) else Edges(
            waits.sources, waits.targets, waits.delays_ns, waits.from_dispatch),
        rest_ns=_rests(load, len(columns), streams), client_delay_ns=_ns(load.client_delay_s),
        idle_cap_ns=None if math.isinf(load.tree_idle_cap_s) else _ns(load.tree_idle_cap_s),
        timeout_ns=_timeouts(columns), cancel_ns=_cancel_ns(load, duration_s))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _starts(columns: Columns, plays: np.ndarray, is_root: np.ndarray) -> np.ndarray:
    """Return when each play comes, by its code: when the first request comes that waits for nobody."""
    start_ns = np.full(int(plays.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(start_ns, plays[is_root], columns.arrival_ns[is_root])
    return start_ns


def _order(plays: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Return the rows by play, plays by their start, then by their first row."""
    first_row = np.full(len(start_ns), len(plays))
    np.minimum.at(first_row, plays, np.arange(len(plays)))
    return np.lexsort((np.arange(len(plays)), first_row[plays], start_ns[plays]))


def _begins(plays: np.ndarray) -> np.ndarray:
    """Return the first row of each play, and the number of rows."""
    return np.append(np.flatnonzero(np.append(True, plays[1:] != plays[:-1])), len(plays))


def _offsets(columns: Columns, is_root: np.ndarray, begins: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Return the time from a play's start before which each of its requests does not come.

    A play starts when the first of those may come that wait for nobody.
    """
    sizes = np.diff(begins)
    offsets = np.where(is_root, columns.arrival_ns - np.repeat(start_ns, sizes), 0)
    if columns.waits is None:
        return offsets
    if columns.waits.not_before_ns is not None:
        offsets = np.maximum(offsets, columns.waits.not_before_ns)
    first = np.minimum.reduceat(np.where(is_root, offsets, np.iinfo(np.int64).max), begins[:-1])
    return np.maximum(offsets - np.repeat(first, sizes), 0)


def _groups(load: Load, duration_s: float | None, num_plays: int, late_ns: np.ndarray | None) -> tuple[Group, ...]:
    plays, ends_ns = np.arange(num_plays), None if duration_s is None else _ns(duration_s)
    if load.mode == "lanes":
        opens_ns = _openings(load, load.lanes)
        if late_ns is not None:
            opens_ns[:len(late_ns)] += late_ns
        if load.assign == "static":
            return tuple(Group(plays[lane::load.lanes], opens_ns[lane:lane + 1], holds_play=True, ends_ns=ends_ns)
                         for lane in range(min(load.lanes, num_plays)))
        if late_ns is not None:             # the first play goes to the lane that opens first
            plays[:len(late_ns)] = np.argsort(opens_ns[:len(late_ns)], kind="stable")
        return (Group(plays, opens_ns, holds_play=True, ends_ns=ends_ns),)
    if load.mode == "concurrency":
        return (Group(plays, _openings(load, load.concurrency), holds_play=load.unit == "session", ends_ns=ends_ns),)
    ceiling = np.zeros(load.max_in_flight, np.int64) if load.max_in_flight else None
    return (Group(plays, ceiling, ends_ns=ends_ns),)


def _openings(load: Load, count: int) -> np.ndarray:
    """Return when each slot opens."""
    return nearest(np.arange(count) * (load.ramp_up_s * 1e9 / count))


def _rests(load: Load, count: int, streams: RandomStreams) -> np.ndarray | None:
    """Return how long the slot of each request rests after its end; None: not at all."""
    if load.think_time_s == 0.0:
        return None
    if isinstance(load.think_time_s, float):
        return np.full(count, _ns(load.think_time_s))
    chosen = load.think_time_s
    distribution = registry.load("time_distribution", chosen.distribution)(chosen.parameters)
    return nearest(distribution.draw(streams.generator("think"), count) * 1e9)


def _timeouts(columns: Columns) -> np.ndarray | None:
    is_given = columns.timeout_ns is not None and np.any(columns.timeout_ns != MISSING)
    return columns.timeout_ns if is_given else None


def _cancel_ns(load: Load, duration_s: float | None) -> int | None:
    if math.isinf(load.grace_s):
        return None
    if duration_s is None:
        raise InputErrors([KeyFault("workload.load.grace_s: counts from duration_s, which the workload does not have")])
    return _ns(duration_s + load.grace_s)
