"""Workloads whose requests come when others let them."""
import numpy as np
from msgspec.structs import replace

from simulator.workload.script import Edges, Group, Script, Slots, Turns
from support.workloads import plain_workload

MS = 1_000_000


def scripted(outputs, script, *, prompts=1):
    """Return requests with these outputs that come as `script` says."""
    workload = plain_workload([-1] * len(outputs), prompts, outputs)
    if script.gives_up:
        workload.demands["deadline_ns"] = 0
    return replace(workload, script=script, scheduled_ns=np.full(len(outputs), -1))


def loop(num_requests, slots, *, starts_ms=None, **options):
    """Return the script of requests that share so many slots; `options` of Slots, Group and Script."""
    of_slots, of_group = ({name: options.pop(name) for name in list(options) if name in kind.__struct_fields__}
                          for kind in (Slots, Group))
    group = Group(np.arange(num_requests), Slots(**{"opens_ns": np.zeros(slots, np.int64)} | of_slots), **of_group)
    start_ns = np.zeros(num_requests, np.int64) if starts_ms is None else ns(starts_ms)
    return Script((group,), start_ns, **options)


def plays(sizes, edges=(), *, slots=None, holds_play=True, starts_ms=None, **options):
    """Return the script of plays of so many requests each.

    edges : (source, target, "end" or "dispatch", delay in ms).
    """
    begins = np.concatenate([[0], np.cumsum(sizes)])
    open_slots = None if slots is None else Slots(np.zeros(slots, np.int64))
    start_ns = np.zeros(len(sizes), np.int64) if starts_ms is None else ns(starts_ms)
    sources, targets, kinds, delays_ms = zip(*edges, strict=True) if edges else ((), (), (), ())
    made = Edges(np.array(sources, np.int64), np.array(targets, np.int64), ns(delays_ms),
                 np.array([kind == "dispatch" for kind in kinds], bool)) if edges else None
    group = Group(np.arange(len(sizes)), open_slots, holds_play=holds_play)
    return Script((group,), start_ns, play_begins=begins, edges=made, **options)


def by_turns(sizes, slots, most_plays, *, rests_ms=None, shares=None, delays_ms=None, **options):
    """Return the script of sessions of so many turns each, which slots serve by turns; `options` of Turns.

    The first slot has the first `most_plays` sessions, the last of them first, and so on; the others are spare.

    delays_ms : from the end of a turn to the next one, by row.
    """
    begins = np.concatenate([[0], np.cumsum(sizes)])
    targets = np.setdiff1d(np.arange(begins[-1]), begins)
    delays = np.zeros(len(targets), np.int64) if delays_ms is None else ns(delays_ms)[targets]
    edges = Edges(targets - 1, targets, delays, np.zeros(len(targets), bool)) if len(targets) else None
    groups = tuple(Group(np.arange(slot * most_plays, (slot + 1) * most_plays)[::-1].copy(), Slots(ns([0])),
                         turns=Turns(most_plays, **options)) for slot in range(slots))
    return Script(groups, np.zeros(len(sizes), np.int64), play_begins=begins, edges=edges,
                  rest_ns=None if rests_ms is None else ns(rests_ms), spare=np.arange(slots * most_plays, len(sizes)),
                  rest_share=None if shares is None else np.array(shares, float))


def ns(milliseconds):
    """Return milliseconds as int64 nanoseconds."""
    return np.rint(np.asarray(milliseconds, float) * MS).astype(np.int64)
