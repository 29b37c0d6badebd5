"""The most tokens that a prefix cache could have served, at the times of a run: Belady's MIN on the tree of blocks.

A request holds the blocks of its text from its first admission to its end. From the end of the last request that holds
a block to the next look-up of the block lies an *interval*: the block is found then if it was kept for the whole
interval. There is none if the next request with that text computes the block anyway, since no prompt is found whole.
With room for N blocks at most N intervals may be kept at any time. The largest number of intervals is chosen by
Belady's rule: where too many are open, the one with the farthest look-up is given up. Sources: L. A. Belady, A study
of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (2), 1966; for intervals: M. C.
Carlisle, E. L. Lloyd, On the k-coloring of intervals, Discrete Applied Mathematics 59 (3), 1995.

An interval of a block contains those of the blocks before it in the text, and ties are broken by depth: a block found
is never behind one that is missing, so that the bound is reached by a cache that finds beginnings of texts alone. It
holds for the admissions, ends and replicas of the run, which another policy would change. It gives running requests
room besides the N blocks, and takes a block for computed from the admission of its request.
"""
from bisect import bisect_right
from collections import defaultdict
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

from simulator.assembly.stays import FOREVER_NS, Stay

ADMISSION, END = 0, 1           # in this order at one instant


class Bound(NamedTuple):
    """Hits of one replica, in blocks: with room for `num_blocks`, and without limit."""

    hits: int
    unlimited: int


def bound_of(stays: list[Stay], num_blocks: int) -> Bound:
    """Return the most hits of a replica with this number of blocks."""
    events = sorted([(stay.begin_ns, ADMISSION, i) for i, stay in enumerate(stays)]
                    + [(stay.end_ns, END, i) for i, stay in enumerate(stays) if stay.end_ns < FOREVER_NS])
    book = _Book(stays, num_blocks)
    hits = unlimited = 0
    for (_, kind), group in groupby(events, key=lambda event: event[:2]):
        group = [stays[i] for _, _, i in group]
        if kind == ADMISSION:
            found, known = book.admit(group)
            hits, unlimited = hits + found, unlimited + known
        else:
            for stay in group:
                book.end(stay)
    return Bound(hits, unlimited)


class _Book:
    """Blocks in use, and blocks kept, while the events of a replica pass."""

    def __init__(self, stays: list[Stay], num_blocks: int):
        self._num_blocks = num_blocks
        self._holders, self._seen, self._kept, self._farthest = defaultdict(int), set(), set(), []
        self._touches = defaultdict(list)       # block -> (time, is computed then) of admissions, in order
        for stay in stays:
            for place, block in enumerate(stay.blocks):
                self._touches[block].append((stay.begin_ns, place >= stay.lookups))

    def admit(self, stays: list[Stay]) -> tuple[int, int]:
        """Return the hits of requests admitted together, and without limit.

        Each may find the blocks of the others: their order is not known.
        """
        looking, computing = defaultdict(int), set()
        for stay in stays:
            for block in stay.blocks[:stay.lookups]:
                looking[block] += 1
            computing.update(stay.blocks[stay.lookups:])
        hits = unlimited = 0
        for block, count in looking.items():
            first = 0 if block in computing else 1      # someone must compute it
            hits += count if self._holders[block] or block in self._kept else count - first
            unlimited += count if block in self._seen else count - first
        for stay in stays:
            self._seen.update(stay.blocks)
            self._kept.difference_update(stay.blocks)
            for block in stay.blocks:
                self._holders[block] += 1
        return hits, unlimited

    def end(self, stay: Stay) -> None:
        """Keep the blocks of a request, unless held; give up the farthest."""
        for depth, block in enumerate(stay.blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0 and (next_ns := self._next_lookup_ns(block, stay.end_ns)) < FOREVER_NS:
                self._kept.add(block)
                heappush(self._farthest, (-next_ns, -depth, block))
        while len(self._kept) > self._num_blocks:
            self._kept.discard(heappop(self._farthest)[2])

    def _next_lookup_ns(self, block: int, time_ns: int) -> int:
        """Return when keeping a block from then on is of use; FOREVER_NS: it is not."""
        touches = self._touches[block]
        place = bisect_right(touches, (time_ns, True))
        next_ns = touches[place][0] if place < len(touches) else FOREVER_NS
        while place < len(touches) and touches[place][0] == next_ns:
            if touches[place][1]:
                return FOREVER_NS
            place += 1
        return next_ns
