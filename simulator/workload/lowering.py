"""Lowering: from columns and [workload.load] to requests in arrival order, or to requests with a script."""
import math

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load, Measure, Warmup
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.build import build_workload
from simulator.workload.columns import (
    Clients,
    Columns,
    Waits,
    by_code,
    first_rows,
    in_arrival_order,
    reordered,
    timeouts_of,
)
from simulator.workload.drawn_warmups import Warmups, with_drawn
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.open_ended import first_plays
from simulator.workload.script import Edges, Group, Script, Slots, Turns
from simulator.workload.stages import StagePlan, groups_of, openings
from simulator.workload.think_times import think_times_of
from simulator.workload.trims import Trim, begun, without_first_turns
from simulator.workload.users import paced
from simulator.workload.warmup import num_rows_of, with_copies, with_first_turns, with_primers

TIMED = ("timestamps", "user_rate")       # modes in which plays come at times of their own
FOR_ALL = ("user_rate", "stages")       # modes that share out all plays among users, or stages
OF_SNAPSHOTS = ("last_turn", "one_token")       # primers of plays that begin in their middle


def workload_of(columns: Columns, section, duration_s: float | None, streams: RandomStreams,
                stages: list[StagePlan] = (), counts: tuple[int, ...] | None = None,
                warmups: Warmups | None = None) -> Workload:
    """Return the requests in the engine's form.

    Parameters
    ----------
    section : simulator.config.experiment.Workload, of which `load`, `measure` and `warmup` are read.
    duration_s : all arrivals are before this time; None: all requests come.
    stages : of `section.load`, planned.
    counts : plays that each group of the script needs, if it is open-ended; None: not known yet.
    warmups : of `section.warmup.stage`.
    """
    load, warmup = section.load, section.warmup
    durations_s = [each for each in (columns.duration_s, duration_s) if each is not None]
    duration_s = min(durations_s, default=None)
    _check_clients(columns, load)
    if stages and duration_s is not None:
        raise InputErrors([KeyFault("workload.duration_s: each of [[workload.load.stages]] has an end of its own; give "
                                    "duration_s there")])
    is_plain = columns.waits is None and columns.clients is None and warmup == Warmup() and not (
        load.max_in_flight or load.mode != "timestamps")
    if is_plain:
        _check_idle(load)
    if is_plain and not _cancels(load):
        _check_measure(section.measure, min(columns.most or len(columns), len(columns)))
        return build_workload(_timed(columns, duration_s))
    if load.mode == "user_rate":
        columns = paced(columns, load)
    columns, script, num_warmups = _warmed(
        *script_of(columns, load, duration_s, streams, stages, warmup), load, warmup, warmups)
    if counts is not None:
        columns, script = first_plays(columns, script, counts)
    built = build_workload(columns)
    built.requests["arrival_ns"] = records.NEVER_NS
    built.demands["deadline_ns"] = 0 if script.gives_up else records.NEVER_NS      # set when each comes
    built.demands["due_ns"] = records.NEVER_NS
    built = replace(built, script=script, scheduled_ns=np.full(len(built), records.NEVER_NS), num_warmups=num_warmups)
    if not built.is_open_ended:
        _check_measure(section.measure, len(built) - num_warmups)
    return built


def _warmed(script: Script, cut: Trim, load: Load, warmup: Warmup,
            drawn: Warmups | None) -> tuple[Columns, Script, int]:
    """Return requests and script with the warm-up requests added, and the number of warm-up requests."""
    columns, num_sent = cut.columns, num_rows_of(script)
    if warmup.primers == "first_turn":
        columns, script = with_first_turns(columns, script, load.most_at_once)
    elif warmup.primers != "none":
        columns, script = with_primers(columns, script, cut.primers, len(cut.late_ns), warmup)
    if warmup.copies_of_first:
        columns, script = with_copies(columns, script, warmup.copies_of_first, load.most_at_once)
    if drawn is not None:
        columns, script = with_drawn(columns, script, drawn)
    return columns, script, len(columns) - num_sent


def _check_primers(load: Load, warmup: Warmup) -> None:
    """Refuse primers where no request continues them."""
    fault = None
    if warmup.primers == "first_turn" and (load.mode in FOR_ALL or load.snapshot != "none" or load.recycle):
        fault = '"first_turn" is of sessions that come as they are: not with user_rate, stages, snapshot or recycle'
    elif warmup.primers in OF_SNAPSHOTS and load.snapshot == "none":
        fault = f'"{warmup.primers}" is of plays that begin in their middle, [workload.load] snapshot = "uniform"'
    if fault is not None:
        raise InputErrors([KeyFault(f"workload.warmup.primers: {fault}")])


def _check_measure(measure: Measure, count: int) -> None:
    if measure.warmup_requests + measure.cooldown_requests >= count:
        raise InputErrors([KeyFault(
            f"workload.measure: warmup_requests and cooldown_requests leave none of {count} requests")])


def _check_clients(columns: Columns, load: Load) -> None:
    if columns.clients is None:
        return
    if load.mode in FOR_ALL:
        raise InputErrors([KeyFault(f'workload.load.mode: "{load.mode}" is for all requests, but clients have loads of '
                                    "their own; leave out the one or the other")])
    if load.mode != "timestamps" and (columns.clients.codes >= 0).all():
        raise InputErrors([KeyFault(f'workload.load.mode: "{load.mode}" is for nobody: each client has a load of its '
                                    "own; leave it out")])


def script_of(columns: Columns, load: Load, duration_s: float | None, streams: RandomStreams,
              stages: list[StagePlan] = (), warmup: Warmup = Warmup()) -> tuple[Script, Trim]:     # noqa: B008
    """Return the script of the measured requests, and its requests.

    Requests are sorted by play, plays by their start; behind them are the primers of [workload.warmup].
    """
    _check_primers(load, warmup)
    plays = np.arange(len(columns)) if columns.waits is None else columns.waits.plays
    is_root = np.ones(len(columns), bool)
    if columns.waits is not None:
        is_root[columns.waits.targets] = False
    start_ns, is_timed = _starts(columns, plays, is_root), _is_timed(columns, load, plays)
    order = _order(plays, np.where(is_timed, start_ns, 0))
    columns, is_root, plays = reordered(columns, order), is_root[order], plays[order]
    if columns.most:
        columns, is_root, plays = first_rows(columns), is_root[:columns.most], plays[:columns.most]
    begins = _begins(plays)
    codes = plays[begins[:-1]]
    is_timed = np.broadcast_to(is_timed, start_ns.shape)[codes]
    start_ns = start_ns[codes]
    left = begins[-2] + np.flatnonzero(is_root[begins[-2]:])
    if len(left):           # the last play may have been cut
        start_ns[-1] = columns.arrival_ns[left].min()
    plays = np.repeat(np.arange(len(start_ns)), np.diff(begins))
    cut = _cut_of(columns, plays, _offsets(columns, is_root, begins, start_ns), load, warmup, streams)
    columns = first_rows(replace(cut.columns, most=len(cut.plays)))
    begins, start_ns, is_timed = _begins(cut.plays), start_ns[cut.left], is_timed[cut.left]
    has_plays = len(begins) <= len(columns)
    groups = groups_of(stages) if stages else _groups_of_clients(columns, load, duration_s, begins[:-1], cut.late_ns)
    by_turns = load.sessions_per_slot is not None
    rest_ns, rest_share = think_times_of(columns, load, streams)
    return Script(
        _cancelled(groups, load, stages),
        np.concatenate([plan.start_ns for plan in stages]) if stages else np.where(is_timed, start_ns, 0),
        play_begins=begins if has_plays or by_turns else None, offset_ns=cut.offset_ns if has_plays else None,
        edges=_edges(columns.waits), rest_ns=rest_ns, rest_share=rest_share,
        client_delay_ns=_ns(load.client_delay_s or 0.0),
        idle_cap_ns=None if math.isinf(load.tree_idle_cap_s) else _ns(load.tree_idle_cap_s),
        timeout_ns=timeouts_of(columns), from_engine=columns.from_engine,
        spare=np.arange(load.sessions_per_slot * load.concurrency, len(begins) - 1) if by_turns else None), cut


def _cut_of(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray, load: Load, warmup: Warmup,
            streams: RandomStreams) -> Trim:
    """Return the plays without the requests that are sent before, or not at all."""
    if load.snapshot == "uniform":
        return begun(columns, plays, offset_ns, load.lanes, streams, warmup.primers != "none")
    if warmup.primers == "first_turn":
        return without_first_turns(columns, plays, offset_ns)
    return Trim(columns, plays, offset_ns, np.arange(int(plays[-1]) + 1), np.empty(0, np.int64))


def _edges(waits: Waits | None) -> Edges | None:
    if waits is None or not len(waits.sources):
        return None
    return Edges(waits.sources, waits.targets, waits.delays_ns, waits.from_dispatch)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _cancels(load: Load) -> bool:
    return not math.isinf(load.grace_s)


def _check_idle(load: Load) -> None:
    if load.client_delay_s:
        raise InputErrors([KeyFault("workload.load.client_delay_s: nothing in this workload waits for the end of "
                                    "another request; take sessions, a closed loop, or leave it out")])


def _timed(columns: Columns, duration_s: float | None) -> Columns:
    """Return requests with given arrival times, restricted to times before the end."""
    columns = in_arrival_order(columns)
    if duration_s is None:
        return columns
    count = int(np.searchsorted(columns.arrival_ns, _ns(duration_s)))
    if count == 0:
        raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {duration_s:g} s")])
    return replace(columns, most=min(columns.most or count, count))


def _starts(columns: Columns, plays: np.ndarray, is_root: np.ndarray) -> np.ndarray:
    """Return the start of each play, by its code: when its first request without dependencies comes."""
    start_ns = np.full(int(plays.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(start_ns, plays[is_root], columns.arrival_ns[is_root])
    return start_ns


def _is_timed(columns: Columns, load: Load, plays: np.ndarray) -> np.ndarray:
    """Return for each play, by its code, whether it comes at its own time rather than when a slot is free."""
    if columns.clients is None:
        return np.array([load.mode in TIMED])
    loads = (*columns.clients.loads, load)              # the last one: -1
    timed = np.array([each.mode in TIMED for each in loads])
    is_timed = np.zeros(int(plays.max()) + 1, bool)
    is_timed[plays] = timed[columns.clients.codes]
    return is_timed


def _order(plays: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Return the rows by play, plays by their start, then by their first row."""
    first_row = np.full(len(start_ns), len(plays))
    np.minimum.at(first_row, plays, np.arange(len(plays)))
    return np.lexsort((np.arange(len(plays)), first_row[plays], start_ns[plays]))


def _begins(plays: np.ndarray) -> np.ndarray:
    """Return the first row of each play, and the number of rows."""
    return np.append(np.flatnonzero(np.append(True, plays[1:] != plays[:-1])), len(plays))


def _offsets(columns: Columns, is_root: np.ndarray, begins: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Return the earliest time of each request after its play's start.

    A play starts when its first request without dependencies may come.
    """
    sizes = np.diff(begins)
    offsets = np.where(is_root, columns.arrival_ns - np.repeat(start_ns, sizes), 0)
    if columns.waits is None:
        return offsets
    if columns.waits.not_before_ns is not None:
        offsets = np.maximum(offsets, columns.waits.not_before_ns)
    first = np.minimum.reduceat(np.where(is_root, offsets, np.iinfo(np.int64).max), begins[:-1])
    return np.maximum(offsets - np.repeat(first, sizes), 0)


def _groups_of_clients(columns: Columns, load: Load, duration_s: float | None, firsts: np.ndarray,
                       late_ns: np.ndarray | None) -> tuple[Group, ...]:
    """Return the groups of all clients, in the order of each client's first play.

    firsts : the first row of each play.
    late_ns : see `_lanes`.
    """
    clients = columns.clients
    if clients is None:
        return tuple(replace(each, is_open_ended=columns.is_guess)
                     for each in _groups(load, duration_s, np.arange(len(firsts)), late_ns=late_ns))
    codes, groups = clients.codes[firsts], []
    for plays in sorted(by_code(codes), key=lambda plays: plays[0]):
        code = int(codes[plays[0]])
        own, slots, is_guess = (load, None, columns.is_guess) if code < 0 else (
            clients.loads[code], _slots(clients, code), clients.are_guesses[code])
        groups += [replace(each, client_delay_ns=_ns(own.client_delay_s or 0.0), is_open_ended=is_guess)
                   for each in _groups(own, duration_s, plays, slots)]
    return tuple(groups)


def _groups(load: Load, duration_s: float | None, plays: np.ndarray, slots: Slots | None = None,
            late_ns: np.ndarray | None = None) -> tuple[Group, ...]:
    ends_ns = None if duration_s is None else _ns(duration_s)
    if load.mode == "lanes":
        return _lanes(load, ends_ns, plays, late_ns)
    if load.sessions_per_slot is not None:
        return _by_turns(load, ends_ns, plays)
    if load.mode == "concurrency":
        slots = slots or Slots(openings(load.ramp_up_s, load.concurrency))
        return (Group(plays, slots, holds_play=load.unit == "session", ends_ns=ends_ns),)
    if load.max_in_flight:
        slots = slots or Slots(np.zeros(min(load.max_in_flight, len(plays)), np.int64))
    return (Group(plays, slots, ends_ns=ends_ns, has_times=True),)


def _lanes(load: Load, ends_ns: int | None, plays: np.ndarray, late_ns: np.ndarray | None) -> tuple[Group, ...]:
    """Return the group of all lanes, or one for each.

    late_ns : from the point at which a lane begins its first play to that play's first request; None: there is none.
    """
    opens_ns = openings(load.ramp_up_s, load.lanes)
    if late_ns is not None:             # a play is no longer idle at its point than anywhere else
        most_ns = late_ns.max() if math.isinf(load.tree_idle_cap_s) else _ns(load.tree_idle_cap_s)
        opens_ns[:len(late_ns)] += np.minimum(late_ns, most_ns)
    if load.assign == "static":
        return tuple(Group(plays[lane::load.lanes], Slots(opens_ns[lane:lane + 1]), holds_play=True, ends_ns=ends_ns)
                     for lane in range(min(load.lanes, len(plays))))
    if late_ns is not None:             # the first play goes to the lane that opens first
        plays[:len(late_ns)] = np.argsort(opens_ns[:len(late_ns)], kind="stable")
    return (Group(plays, Slots(opens_ns), holds_play=True, ends_ns=ends_ns),)


def _by_turns(load: Load, ends_ns: int | None, plays: np.ndarray) -> tuple[Group, ...]:
    """Return a group for each slot, with its first sessions in reverse order: it begins with the last of its own."""
    most, num_slots = load.sessions_per_slot, load.concurrency
    if load.ends_with != "last_session" and len(plays) < most * num_slots:
        raise InputErrors([KeyFault(
            f"workload.load.sessions_per_slot: {num_slots} slots with {most} sessions each need {most * num_slots} "
            f"sessions, the workload has {len(plays)}; a slot without would end the load at once")])
    turns = Turns(most, load.requests_per_slot, load.ends_with != "last_session", load.ends_with == "first_slot")
    opens_ns = openings(load.ramp_up_s, num_slots)
    return tuple(Group(plays[slot * most:(slot + 1) * most][::-1].copy(), Slots(opens_ns[slot:slot + 1]), turns=turns,
                       ends_ns=ends_ns) for slot in range(num_slots))


def _slots(clients: Clients, code: int) -> Slots | None:
    """Return the slots of a client; None: its load alone defines them."""
    load, opens_ns, stays_ns = clients.loads[code], clients.opens_ns[code], clients.stays_ns[code]
    count = load.concurrency or load.max_in_flight
    if not count or (opens_ns is None and stays_ns is None):
        return None
    opens_ns = openings(load.ramp_up_s, count) if opens_ns is None else opens_ns
    if stays_ns is None:
        return Slots(opens_ns)
    begins_ns, ends_ns = stays_ns.T
    opens_ns = np.maximum(begins_ns, begins_ns[0] + opens_ns[:, None])
    return Slots(opens_ns.ravel(), np.tile(ends_ns, count), np.tile(np.arange(len(ends_ns)) > 0, count))



def _cancelled(groups: tuple[Group, ...], load: Load, stages: list[StagePlan]) -> tuple[Group, ...]:
    """Return the groups, with the instants at which their clients give up."""
    if not _cancels(load):
        return groups
    ends_ns = [plan.ends_ns for plan in stages] if stages else [group.ends_ns for group in groups]
    if all(end_ns is None for end_ns in ends_ns):
        raise InputErrors([KeyFault(
            "workload.load.grace_s: counts from duration_s, which neither the workload nor a stage has")])
    grace_ns = _ns(min(load.grace_s, MAX_TIME_NS / 1e9))
    return tuple(group if end_ns is None else replace(group, cancel_ns=min(end_ns + grace_ns, MAX_TIME_NS))
                 for group, end_ns in zip(groups, ends_ns, strict=True))
