"""Chains of requests in a Weka trace: each prompt extends the prompt before.

Source: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/weka.rs, also of the thresholds.
"""
import heapq
from typing import NamedTuple

EPSILON_S = 1e-6                # a request that ends less than this later counts as ended
MAX_GAP_S = 3600.0              # a chain that paused for longer continues only with
MIN_OVERLAP = 0.5               # ... this share of its last prompt's blocks


class Turn(NamedTuple):
    """One request.

    row : of the columns. start_s, end_s : as recorded, since the trace's beginning. order : its index in the file.
    """

    start_s: float
    order: int
    row: int
    end_s: float
    model: str
    ids: list[int]


class Fork(NamedTuple):
    """Where a chain left another one: after `turn`, with `depth` blocks in common."""

    turn: Turn
    depth: int


class Chain:
    """Consecutive turns."""

    def __init__(self, fork: Fork | None = None):
        self.turns, self.fork = [], fork
        self.tail = None            # the last turn that has ids
        self.owner = None           # the chain that this one was joined to

    def append(self, turn: Turn) -> None:
        """Add a turn at the end."""
        self.turns.append(turn)
        if turn.ids:
            self.tail = turn


def chains_of(turns: list[Turn]) -> list[Chain]:
    """Return the chains of turns that one agent sent, by their first turn.

    A turn continues the chain with the last prompt that is the longest beginning of its own, has its model, and has
    ended. If there is none, the turn begins a chain as a fork of the chain with most blocks in common; of all forks
    after a chain's last turn, the one with most blocks in common is joined to that chain.
    """
    chains = []
    for turn in sorted(turns):
        chain = _extended(chains, turn)
        if chain is None and (not turn.ids or all(each.tail is None for each in chains)):
            chain = chains[0] if chains else None
        if chain is None:
            chain = Chain(_fork(chains, turn))
            chains.append(chain)
        chain.append(turn)
    _join(chains)
    kept = [chain for chain in chains if chain.owner is None]
    for chain in kept:
        chain.turns.sort()
    return sorted(kept, key=lambda chain: chain.turns[0])


def common(first: list[int], second: list[int]) -> int:
    """Return the number of ids that two prompts have in common at the beginning."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    return next(at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])


def _extended(chains: list[Chain], turn: Turn) -> Chain | None:
    best, longest = None, 0
    for chain in chains:
        tail = chain.tail
        if (tail is not None and longest < len(tail.ids) <= len(turn.ids) and tail.model == turn.model
                and tail.end_s <= turn.start_s + EPSILON_S and tail.ids == turn.ids[:len(tail.ids)]):
            best, longest = chain, len(tail.ids)
    return best


def _fork(chains: list[Chain], turn: Turn) -> Fork | None:
    best, best_key = None, (0, 0)
    for chain in chains:
        if chain.tail is not None:
            key = common(chain.tail.ids, turn.ids), len(chain.tail.ids)
            if key[0] > 0 and key > best_key:
                best, best_key = chain.tail, key
    return None if best is None else Fork(best, best_key[0])


def _join(chains: list[Chain]) -> None:
    """Join to each chain a fork that left it after its last turn."""
    chain_of, forks = {}, {}
    for chain in chains:
        for turn in chain.turns:
            chain_of[turn.row] = chain
        if chain.fork is not None:
            forks.setdefault(chain.fork.turn.row, []).append(chain)
    waiting = [chain.fork.turn for chain in chains if chain.fork is not None]
    heapq.heapify(waiting)
    while waiting:
        turn = heapq.heappop(waiting)
        owner = _owner(chain_of[turn.row])
        if owner.tail is not turn:
            continue
        candidates = [chain for chain in forks.pop(turn.row, ()) if chain.owner is None]
        fitting = [chain for chain in candidates if _goes_on(turn, chain)]
        if not fitting:
            continue
        chosen = min(fitting, key=lambda chain: (-chain.fork.depth, chain.turns[0]))
        owner.turns += chosen.turns
        owner.tail, chosen.owner = chosen.tail, owner
        for chain in candidates:
            first = chain.turns[0]
            depth = common(owner.tail.ids, first.ids)
            if chain is not chosen and owner.tail.start_s <= first.start_s + EPSILON_S and depth > 0:
                chain.fork = Fork(owner.tail, depth)
                forks.setdefault(owner.tail.row, []).append(chain)
                heapq.heappush(waiting, owner.tail)


def _owner(chain: Chain) -> Chain:
    while chain.owner is not None:
        chain = chain.owner
    return chain


def _goes_on(turn: Turn, chain: Chain) -> bool:
    first = chain.turns[0]
    is_late = first.start_s - turn.end_s > MAX_GAP_S and chain.fork.depth < MIN_OVERLAP * len(turn.ids)
    return turn.end_s <= first.start_s + EPSILON_S and first.model == turn.model and not is_late
