"""Plays with first requests that are sent to warm up, or not at all."""
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, first_rows, reordered

UNSENT = "requests before the points at which the first plays of lanes begin, which are not sent"
NEVER = np.iinfo(np.int64).max


class Trim(NamedTuple):
    """The rest of the plays.

    columns : the remaining requests, by play; behind them `primers`; all others are dropped. A remaining request that
        waited for a primer waits for the primer's end without its delay, and comes at its offset in the play.
    plays : int64 (n,), index of the play of each remaining request, from 0.
    offset_ns : int64 (n,), the earliest time of each remaining request after its play's start.
    left : int64 (p,), the index that each remaining play had before.
    primers : int64 (m,), the index that the play of each warm-up request had before, by play, in sending order.
    late_ns : int64 (lanes,), from the point at which a lane begins to its first request; None: no play begins at a
        point inside it.
    """

    columns: Columns
    plays: np.ndarray
    offset_ns: np.ndarray
    left: np.ndarray
    primers: np.ndarray
    late_ns: np.ndarray | None = None


def begun(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray, lanes: int, streams: RandomStreams,
          is_primed: bool = False) -> Trim:
    """Return requests with the first play of each lane begun in its middle.

    The point is uniform between the recorded beginnings of the play's first and last request. Later requests keep their
    recorded distance from the point; if a play records only delays, its requests count as if they took no time. Primers
    are the last request before the point of each conversation that goes on after it; a conversation is a session, or
    all requests of a play without one. Sources of the ideas: AgentX, SemiAnalysis FAQ of ai-dynamo/aiperf; for primers
    also ai-dynamo/aisimulate, docs/agentic-warmup.md.

    Parameters
    ----------
    columns : by play.
    plays : int64 (n,), index of each request's play, from 0.
    is_primed : primers are needed.
    """
    lanes = min(lanes, int(plays[-1]) + 1)
    recorded_ns = _recorded_ns(columns, offset_ns)
    length_ns = np.zeros(int(plays[-1]) + 1)
    np.maximum.at(length_ns, plays, recorded_ns)
    points_ns = np.zeros(len(length_ns), np.int64)
    points_ns[:lanes] = (streams.generator("snapshot").random(lanes) * length_ns[:lanes]).astype(np.int64)
    is_left = recorded_ns >= points_ns[plays]
    offset_ns = np.maximum(offset_ns - points_ns[plays], 0)
    if columns.waits is not None:
        sources, targets = columns.waits.sources, columns.waits.targets
        gone = ~is_left[sources]
        np.maximum.at(offset_ns, targets[gone],
                      (recorded_ns[sources] + columns.waits.delays_ns - points_ns[plays[sources]])[gone])
    primers = _last_turns(columns, plays, recorded_ns, is_left) if is_primed else np.empty(0, np.int64)
    num_unsent = int(np.sum(~is_left)) - len(primers)
    if num_unsent:
        columns = replace(columns, notes=(*columns.notes, f"{UNSENT}: {num_unsent}"))
    cut, first_ns = _cut(columns, plays, offset_ns, is_left, primers)
    return cut._replace(late_ns=first_ns[:lanes])


def without_first_turns(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray) -> Trim:
    """Return sessions without their first turns, which are sent before.

    Source of the idea: vllm-project/vllm, benchmarks/multi_turn, --warmup-step.

    Raises
    ------
    InputErrors
        No session has a second turn.
    """
    is_left = np.zeros(len(columns), bool)
    if columns.waits is not None:
        is_left[columns.waits.targets] = True
    if not is_left.any():
        raise InputErrors([KeyFault('workload.warmup.primers: "first_turn" leaves nothing to send after it: no request '
                                    "of this workload waits for another")])
    return _cut(columns, plays, offset_ns, is_left, np.flatnonzero(~is_left))[0]


def _cut(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray, is_left: np.ndarray,
         primers: np.ndarray) -> tuple[Trim, np.ndarray]:
    """Return the rest of the plays, and when the first request of each remaining play comes.

    primers : rows.
    """
    order = np.concatenate([np.flatnonzero(is_left), primers])
    others = np.ones(len(plays), bool)
    others[order] = False
    kept, num_left = first_rows(replace(reordered(columns, np.append(order, np.flatnonzero(others))),
                                        most=len(order))), int(is_left.sum())
    left, of_play = np.unique(plays[is_left], return_inverse=True)
    is_free, waits = np.ones(len(kept), bool), kept.waits
    if waits is not None:
        is_inside = waits.sources < num_left
        is_free[waits.targets[is_inside]] = False
        kept = replace(kept, waits=replace(
            waits, delays_ns=np.where(is_inside, waits.delays_ns, 0),
            from_dispatch=waits.from_dispatch & is_inside))
    offset_ns = offset_ns[is_left]
    first_ns = np.full(len(left), NEVER)
    np.minimum.at(first_ns, of_play[is_free[:num_left]], offset_ns[is_free[:num_left]])
    return Trim(kept, of_play, np.maximum(offset_ns - first_ns[of_play], 0), left, plays[primers]), first_ns


def _last_turns(columns: Columns, plays: np.ndarray, recorded_ns: np.ndarray, is_left: np.ndarray) -> np.ndarray:
    """Return the rows of each conversation's last request before its play goes on, by play."""
    session = columns.labels["session"][0] if "session" in columns.labels else np.full(len(plays), -1)
    talks = np.unique(np.stack([plays, session], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    goes_on = np.zeros(int(talks.max()) + 1, bool)
    goes_on[talks[is_left]] = True
    rows = np.flatnonzero(~is_left & goes_on[talks])
    rows = rows[np.lexsort((rows, recorded_ns[rows], talks[rows]))]
    is_last = np.append(talks[rows][1:] != talks[rows][:-1], True)[:len(rows)]
    rows = rows[is_last]
    return rows[np.lexsort((rows, recorded_ns[rows], plays[rows]))]


def _recorded_ns(columns: Columns, offset_ns: np.ndarray) -> np.ndarray:
    """Return the earliest time of each request, since its play's start."""
    waits, recorded_ns = columns.waits, offset_ns
    while waits is not None:
        later_ns = recorded_ns.copy()
        np.maximum.at(later_ns, waits.targets, recorded_ns[waits.sources] + waits.delays_ns)
        if np.array_equal(later_ns, recorded_ns):
            break
        recorded_ns = later_ns
    return recorded_ns
