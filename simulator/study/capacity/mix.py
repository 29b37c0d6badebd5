"""The cheapest mix of pools that carries a load.

A mix carries at most the capacities of its replicas alone, times a factor: common queues help. Mixes with a bound below
the
target are skipped; the others are tried in order of price.
"""
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from simulator.study.capacity.verdict import Verdict

PRICE, GPUS = "price", "gpus"


class Kind(NamedTuple):
    """A pool with an open number of replicas.

    capacity_per_s : of one replica; inf: not known, for too few requests. price_per_hour, gpus : of one replica.
    """

    pool: str
    least: int
    most: int
    capacity_per_s: float
    price_per_hour: float
    gpus: int


class Mix(NamedTuple):
    """A number of replicas of each pool, in the order of the kinds."""

    counts: tuple[int, ...]
    bound_per_s: float
    price_per_hour: float
    gpus: int


class Chosen(NamedTuple):
    """The chosen mix.

    answer : the best mix that passes; None: none does. verdicts : of all mixes tried, in their order.
    num_skipped : mixes before the answer with a bound below the target.
    undecided : mixes before the answer that failed by their mean alone.
    """

    answer: Mix | None
    verdicts: list[tuple[Mix, Verdict]]
    num_skipped: int
    undecided: list[Mix]


def mixes_of(kinds: Sequence[Kind], factor: float, order: str) -> list[Mix]:
    """Return all mixes with at least one replica, the best first.

    Equal prices are ordered by GPUs, and equal numbers of GPUs by price.
    """
    found = []
    for counts in itertools.product(*(range(kind.least, kind.most + 1) for kind in kinds)):
        if any(counts):
            own = [(count, kind) for count, kind in zip(counts, kinds, strict=True) if count]      # 0 x inf is none
            price, gpus, bound = (sum(count * getattr(kind, name) for count, kind in own)
                                  for name in ("price_per_hour", "gpus", "capacity_per_s"))
            found.append(Mix(counts, factor * bound, price, gpus))
    ranks = ("gpus", "price_per_hour") if order == GPUS else ("price_per_hour", "gpus")
    return sorted(found, key=lambda mix: (*(round(getattr(mix, rank), 9) for rank in ranks), mix.counts))


def choose(kinds: Sequence[Kind], target_per_s: float, judge: Callable[[Mix], Verdict], factor: float = 1.15,
           order: str = PRICE) -> Chosen:
    """Return the best mix that passes at the target.

    Also the mixes before it that more runs might let pass.
    """
    mixes = mixes_of(kinds, factor, order)
    verdicts, answer, num_skipped = [], None, 0
    for mix in mixes:
        if mix.bound_per_s < target_per_s * (1 - 1e-12):
            num_skipped += 1
            continue
        verdict = judge(mix)
        verdicts.append((mix, verdict))
        if verdict.passes:
            answer = mix
            break
    return Chosen(answer, verdicts, num_skipped,
                  [mix for mix, verdict in verdicts if verdict.is_undecided and not verdict.passes])


def text_of(mix: Mix, kinds: Sequence[Kind]) -> str:
    """Return a mix in words."""
    parts: Iterator[str] = (f"{count} x {kind.pool}" for count, kind in zip(mix.counts, kinds, strict=True) if count)
    return " + ".join(parts)
