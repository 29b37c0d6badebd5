"""Plays that come again and again, and lanes that begin in the middle of one."""
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.workload.columns import Columns, Prompts, first_rows, reordered

UNSENT = "requests before the points at which the first plays of lanes begin, which are not sent"


class Snapshot(NamedTuple):
    """What is left of the first plays of lanes.

    columns : without the requests before the points at which these begin.
    plays : int64 (n,), index of each request's play.
    offset_ns : int64 (n,), the time from the play's start before which each request does not come.
    late_ns : int64 (lanes,), from that point to the first request of each lane.
    """

    columns: Columns
    plays: np.ndarray
    offset_ns: np.ndarray
    late_ns: np.ndarray


def repeated(columns: Columns, num_requests: int) -> Columns:
    """Return plays again and again, so often that they have a number of requests.

    Those of a later turn share nothing with earlier ones: their texts and sessions are new, as with AgentX's private
    prefixes of replays.
    """
    count = len(columns)
    times = max(1, -(-num_requests // count))
    if times == 1:
        return columns
    turn = np.repeat(np.arange(times), count)
    ids = columns.request_ids if columns.request_ids is not None else range(count)
    tiled = {name: np.tile(getattr(columns, name), times)
             for name in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "max_tokens", "timeout_ns",
                          "expected_tokens")
             if getattr(columns, name) is not None}
    tiled["facts"] = {name: np.tile(values, times) for name, values in columns.facts.items()}
    labels = {label: (np.tile(codes, times), names) for label, (codes, names) in columns.labels.items()}
    if "session" in labels:
        codes, names = labels["session"]
        labels["session"] = (np.where(codes < 0, -1, codes + turn * len(names)),
                             [f"{name}#{k}" if k else name for k in range(times) for name in names])
    waits = columns.waits
    if waits is not None:
        shift = np.repeat(np.arange(times), len(waits.sources)) * count
        waits = replace(
            waits, plays=np.tile(waits.plays, times) + turn * (int(waits.plays.max()) + 1),
            sources=np.tile(waits.sources, times) + shift, targets=np.tile(waits.targets, times) + shift,
            delays_ns=np.tile(waits.delays_ns, times), from_dispatch=np.tile(waits.from_dispatch, times),
            not_before_ns=None if waits.not_before_ns is None else np.tile(waits.not_before_ns, times))
    return replace(columns, **tiled, labels=labels, waits=waits, prompts=_repeated(columns.prompts, times, count),
                   request_ids=[f"{each}#{k}" if k else str(each) for k in range(times) for each in ids])


def _repeated(prompts: Prompts | None, times: int, count: int) -> Prompts | None:
    if prompts is None:
        return None
    streams = np.tile(prompts.streams, times)
    turn = np.repeat(np.arange(times), len(prompts.streams))
    is_named = streams & 3 == records.named_stream(0)
    num_named = int((prompts.streams >> 2).max(initial=0)) + 1
    return Prompts(np.tile(prompts.num_segments, times), streams + (turn * np.where(is_named, num_named, count) << 2),
                   np.tile(prompts.num_tokens, times))


def begun(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray, lanes: int, streams: RandomStreams) -> Snapshot:
    """Return requests of which the first play of each lane begins in its middle.

    The point is uniform between the recorded beginnings of the play's first and last request. What comes later keeps
    the distance from it that was recorded; where nothing but delays was, that is as if requests took no time. Source
    of the idea: AgentX, SemiAnalysis FAQ of ai-dynamo/aiperf.

    Parameters
    ----------
    columns : by play.
    plays : int64 (n,), index of each request's play, from 0.
    """
    lanes = min(lanes, int(plays[-1]) + 1)
    late_ns = np.zeros(lanes, np.int64)
    if columns.waits is None:
        return Snapshot(columns, plays, offset_ns, late_ns)
    sources, targets = columns.waits.sources, columns.waits.targets
    recorded_ns = _recorded_ns(columns, offset_ns)
    length_ns = np.zeros(int(plays[-1]) + 1)
    np.maximum.at(length_ns, plays, recorded_ns)
    points_ns = np.zeros(len(length_ns), np.int64)
    points_ns[:lanes] = (streams.generator("snapshot").random(lanes) * length_ns[:lanes]).astype(np.int64)
    is_kept = recorded_ns >= points_ns[plays]
    offset_ns = np.maximum(offset_ns - points_ns[plays], 0)
    gone = ~is_kept[sources]
    np.maximum.at(offset_ns, targets[gone],
                  (recorded_ns[sources] + columns.waits.delays_ns - points_ns[plays[sources]])[gone])
    is_free = is_kept.copy()
    is_free[targets[is_kept[sources]]] = False
    first_ns = np.full(len(length_ns), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, plays[is_free], offset_ns[is_free])
    order = np.argsort(~is_kept, kind="stable")
    num_kept = int(is_kept.sum())
    if num_kept < len(plays):
        notes = (*columns.notes, f"{UNSENT}: {len(plays) - num_kept}")
        columns = first_rows(replace(reordered(columns, order), most=num_kept, notes=notes))
    late_ns[:] = first_ns[:lanes]
    return Snapshot(columns, plays[order][:num_kept], np.maximum(offset_ns - first_ns[plays], 0)[order][:num_kept],
                    late_ns)


def _recorded_ns(columns: Columns, offset_ns: np.ndarray) -> np.ndarray:
    """Return when each request comes at the earliest, since its play's start."""
    waits, recorded_ns = columns.waits, offset_ns
    while True:
        later_ns = recorded_ns.copy()
        np.maximum.at(later_ns, waits.targets, recorded_ns[waits.sources] + waits.delays_ns)
        if np.array_equal(later_ns, recorded_ns):
            return recorded_ns
        recorded_ns = later_ns
