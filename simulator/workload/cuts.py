"""Plays of which the first requests are sent to warm up, or not at all."""
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, first_rows, reordered

UNSENT = "requests before the points at which the first plays of lanes begin, which are not sent"
NEVER = np.iinfo(np.int64).max


class Cut(NamedTuple):
    """What is left of plays.

    columns : the requests that are left, by play; behind them `primers`; without the others. What is left waits for a
        primer that it waited for, but comes when its play lets it.
    plays : int64 (n,), index of the play of each that is left, from 0.
    offset_ns : int64 (n,), the time from the play's start before which it does not come.
    left : int64 (p,), what the index of each play was before.
    primers : int64 (m,), of requests that warm up, in the order in which each play sends them: the play's index before.
    late_ns : int64 (lanes,), from the point at which a lane begins to the first request of it; None: plays are whole
        from there on.
    """

    columns: Columns
    plays: np.ndarray
    offset_ns: np.ndarray
    left: np.ndarray
    primers: np.ndarray
    late_ns: np.ndarray | None = None


def begun(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray, lanes: int, streams: RandomStreams,
          is_primed: bool = False) -> Cut:
    """Return requests of which the first play of each lane begins in its middle.

    The point is uniform between the recorded beginnings of the play's first and last request. What comes later keeps
    the distance from it that was recorded; where nothing but delays was, that is as if requests took no time. Primers
    are, of each conversation that goes on after the point, the last request before it; a conversation is a session, or
    what a play has without one. Sources of the ideas: AgentX, SemiAnalysis FAQ of ai-dynamo/aiperf; for primers also
    ai-dynamo/aisimulate, docs/agentic-warmup.md.

    Parameters
    ----------
    columns : by play.
    plays : int64 (n,), index of each request's play, from 0.
    is_primed : there are to be primers.
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


def without_first_turns(columns: Columns, plays: np.ndarray, offset_ns: np.ndarray) -> Cut:
    """Return what is left of sessions whose first turns are sent before.

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
         primers: np.ndarray) -> tuple[Cut, np.ndarray]:
    """Return what is left of plays, and when the first request of each of these comes.

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
    return Cut(kept, of_play, np.maximum(offset_ns - first_ns[of_play], 0), left, plays[primers]), first_ns


def _last_turns(columns: Columns, plays: np.ndarray, recorded_ns: np.ndarray, is_left: np.ndarray) -> np.ndarray:
    """Return the rows of the last request of each conversation before its play goes on, by play."""
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
    """Return when each request comes at the earliest, since its play's start."""
    waits, recorded_ns = columns.waits, offset_ns
    while waits is not None:
        later_ns = recorded_ns.copy()
        np.maximum.at(later_ns, waits.targets, recorded_ns[waits.sources] + waits.delays_ns)
        if np.array_equal(later_ns, recorded_ns):
            break
        recorded_ns = later_ns
    return recorded_ns
