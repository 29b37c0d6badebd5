"""Users that send their turns at a fixed rate: AIPerf's user-centric rate."""
import numpy as np
from msgspec.structs import replace

from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Waits, first_rows, reordered


def paced(columns: Columns, load: Load) -> Columns:
    """Return the requests as one play a user; users take sessions round-robin.

    Each user's turns are due every users / rate_per_s seconds; if the answer came later, the turn follows at once, and
    the next turn counts from it. Users begin 1 / rate_per_s apart, in steady state: the first session of user u of n
    begins at a share u / n of its turns, and turns before that are not sent. Other waits of a turn, such as a think
    time, hold too.

    Source: AIPerf, docs/tutorials/user-centric-timing.md, --user-centric-rate with --num-users.
    """
    columns, waits, begins = _chains(columns)
    num_sessions, users = len(begins) - 1, min(load.users, len(begins) - 1)
    owner, number = np.arange(num_sessions) % load.users, np.arange(num_sessions) // load.users
    lengths = np.diff(begins)
    skipped = np.where(number == 0, owner * lengths // load.users, 0)
    turn = np.arange(len(columns)) - np.repeat(begins[:-1], lengths)
    is_sent = turn >= np.repeat(skipped, lengths)
    rows = np.lexsort((turn, np.repeat(number, lengths), np.repeat(owner, lengths)))
    order = np.concatenate([rows[is_sent[rows]], rows[~is_sent[rows]]])     # unsent turns keep their streams
    columns = first_rows(replace(reordered(replace(columns, waits=waits), order), most=int(is_sent.sum())))
    user = np.repeat(owner, lengths)[order][:len(columns)]
    follows = np.flatnonzero(user[1:] == user[:-1]) + 1
    period_ns = round(load.users / load.rate_per_s * 1e9)
    sources = np.concatenate([columns.waits.sources, follows - 1, follows - 1])
    targets = np.concatenate([columns.waits.targets, follows, follows])
    delays_ns = np.concatenate([columns.waits.delays_ns, np.zeros(len(follows), np.int64),
                                np.full(len(follows), period_ns)])
    from_dispatch = np.concatenate([columns.waits.from_dispatch, np.zeros(len(follows), bool),
                                    np.ones(len(follows), bool)])
    first = np.append(0, np.flatnonzero(user[1:] != user[:-1]) + 1)
    arrival_ns = np.zeros(len(columns), np.int64)
    arrival_ns[first] = np.rint(np.arange(users) / load.rate_per_s * 1e9).astype(np.int64)
    return replace(columns, arrival_ns=arrival_ns, waits=Waits(user, sources, targets, delays_ns, from_dispatch))


def _chains(columns: Columns) -> tuple[Columns, Waits, np.ndarray]:
    """Return the requests by session, in order of turns, their waits, and the first row of each session."""
    count = len(columns)
    none = np.empty(0, np.int64)
    if columns.waits is None:
        return columns, Waits(np.arange(count), none, none, none, np.empty(0, bool)), np.arange(count + 1)
    order = np.lexsort((np.arange(count), columns.waits.plays))
    columns = reordered(columns, order)
    plays = columns.waits.plays
    begins = np.append(np.flatnonzero(np.append(True, plays[1:] != plays[:-1])), count)
    if np.any(columns.waits.targets - columns.waits.sources != 1) or columns.waits.from_dispatch.any():
        raise InputErrors([KeyFault(
            'workload.load.mode: "user_rate" takes sessions, in which each turn waits for the one before; this '
            "workload has other graphs")])
    return columns, columns.waits, begins
