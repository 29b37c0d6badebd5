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
from simulator.workload.script import Edges, Group, Script
from simulator.workload.stages import StagePlan, groups_of
from simulator.workload.users import paced


def workload_of(columns: Columns, load: Load, duration_s: float | None, streams: RandomStreams,
                stages: list[StagePlan] = ()) -> Workload:
    """Return the requests as the engine takes them.

    Parameters
    ----------
    duration_s : nobody comes then or later; None: all come.
    stages : of `load`, planned.
    """
    if columns.waits is None and not (load.max_in_flight or load.mode != "timestamps" or _cancels(load)):
        return build_workload(_timed(columns, load, duration_s))
    if load.mode == "user_rate":
        columns = paced(columns, load)
    columns, script = script_of(columns, load, duration_s, streams, stages)
    built = build_workload(columns)
    built.requests["arrival_ns"] = records.NEVER_NS
    gives_up = script.timeout_ns is not None or script.cancel_ns is not None
    built.demands["deadline_ns"] = 0 if gives_up else records.NEVER_NS      # set when each comes
    built.demands["due_ns"] = records.NEVER_NS
    return replace(built, script=script, scheduled_ns=np.full(len(built), records.NEVER_NS))


def script_of(columns: Columns, load: Load, duration_s: float | None, streams: RandomStreams,
              stages: list[StagePlan]) -> tuple[Columns, Script]:
    """Return the requests by play, in the order in which these come, and the script."""
    plays = np.arange(len(columns)) if columns.waits is None else columns.waits.plays
    is_root = np.ones(len(columns), bool)
    if columns.waits is not None:
        is_root[columns.waits.targets] = False
    start_ns = _starts(columns, plays, is_root)
    is_timed = load.mode in ("timestamps", "user_rate")
    order = _order(plays, start_ns if is_timed else np.zeros_like(start_ns))
    columns, is_root, plays = reordered(columns, order), is_root[order], plays[order]
    if columns.most:
        is_root, plays, columns = is_root[:columns.most], plays[:columns.most], first_rows(columns)
    begins = np.append(np.flatnonzero(np.append(True, plays[1:] != plays[:-1])), len(plays))
    start_ns = start_ns[plays[begins[:-1]]]
    offset_ns = _offsets(columns, is_root, np.repeat(start_ns, np.diff(begins)))
    has_plays = len(begins) <= len(plays)
    waits = columns.waits
    begin_ns = start_ns if is_timed else np.zeros_like(start_ns)
    if stages:
        begin_ns = np.concatenate([plan.start_ns for plan in stages])
    return columns, Script(
        groups_of(stages) if stages else _groups(load, duration_s, len(begins) - 1), begin_ns,
        play_begins=begins if has_plays else None, offset_ns=offset_ns if has_plays else None,
        edges=None if waits is None or not len(waits.sources) else Edges(
            waits.sources, waits.targets, waits.delays_ns, waits.from_dispatch),
        rest_ns=_rests(load, len(columns), streams), client_delay_ns=_ns(load.client_delay_s),
        idle_cap_ns=None if math.isinf(load.tree_idle_cap_s) else _ns(load.tree_idle_cap_s),
        timeout_ns=_timeouts(columns), cancel_ns=_cancel_ns(load, duration_s))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _cancels(load: Load) -> bool:
    return not math.isinf(load.grace_s)


def _timed(columns: Columns, load: Load, duration_s: float | None) -> Columns:
    """Return requests that come at their times, before the end."""
    idle = [key for key in ("client_delay_s", "tree_idle_cap_s") if getattr(load, key) != getattr(Load(), key)]
    if idle:
        raise InputErrors([KeyFault(f"workload.load.{key}: nothing in this workload waits for the end of another "
                                    "request; take sessions, a closed loop, or leave it out") for key in idle])
    columns = in_arrival_order(columns)
    if duration_s is None:
        return columns
    count = int(np.searchsorted(columns.arrival_ns, _ns(duration_s)))
    if count == 0:
        raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {duration_s:g} s")])
    return replace(columns, most=min(columns.most or count, count))


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


def _offsets(columns: Columns, is_root: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Return the time from a play's start before which each of its requests does not come."""
    offsets = np.where(is_root, columns.arrival_ns - start_ns, 0)
    if columns.waits is None or columns.waits.not_before_ns is None:
        return offsets
    return np.maximum(offsets, columns.waits.not_before_ns)


def _groups(load: Load, duration_s: float | None, num_plays: int) -> tuple[Group, ...]:
    plays, ends_ns = np.arange(num_plays), None if duration_s is None else _ns(duration_s)
    if load.mode == "lanes" and load.assign == "static":
        opens_ns = _openings(load, load.lanes)
        return tuple(Group(plays[lane::load.lanes], opens_ns[lane:lane + 1], holds_play=True, ends_ns=ends_ns)
                     for lane in range(min(load.lanes, num_plays)))
    if load.mode == "lanes":
        return (Group(plays, _openings(load, load.lanes), holds_play=True, ends_ns=ends_ns),)
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
    if not _cancels(load):
        return None
    if duration_s is None:
        raise InputErrors([KeyFault("workload.load.grace_s: counts from duration_s, which the workload does not have")])
    return _ns(duration_s + load.grace_s)
