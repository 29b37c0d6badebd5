"""The score of a deployment left out of the choice of prices: those that help the other deployments are kept.

No constant of `operators` is fitted to a deployment. Which prices exist, however, was decided beside these
measurements, and each decision is made here again without the deployment that it is judged by.
"""
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean

import msgspec

from simulator.study.accuracy.ablation import NOTHING, Ablated, Price, ablate
from simulator.study.accuracy.data_set import Opened

WITHOUT = "latency.without="
CHOICE = "the prices that the others choose"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one metric of a deployment under prices that the others choose.

    dropped : names of the prices that do not help the other deployments.
    mape_pct, median_ape_pct, bias_pct : as in `Row`.
    """

    data_set: str
    model: str
    gpu: str
    metric: str
    dropped: tuple[str, ...]
    mape_pct: float | None
    median_ape_pct: float | None
    bias_pct: float | None


def choose(data_sets: list[Opened], ablations: Iterable[Ablated],
           report: Callable[[str], None] = lambda line: None) -> tuple[Chosen, ...]:
    """Simulate each data set with the prices that the other data sets choose.

    ablations : of all the data sets, as `ablate` returns them.
    report : callback, called with a line when a data set is done.
    """
    found = []
    prices = _prices(ablations)
    for data_set in data_sets:
        name = data_set.says.name
        dropped = without_help(ablations, name)
        if dropped:
            price = Price(CHOICE, together([prices[each] for each in dropped]))
            scores = ablate([data_set], [price])
        else:
            scores = [each for each in ablations if (each.without, each.data_set) == (NOTHING, name)]
        found += [_chosen(each, dropped) for each in scores if each.metric]
        report(f"{name} without {', '.join(dropped) or 'nothing'}: done")
    return tuple(found)


def without_help(ablations: Iterable[Ablated], left_out: str) -> tuple[str, ...]:
    """Return the names of prices that do not help the other data sets.

    Without such a price the MAPE of the others is lower, on average.

    Each data set counts once, as the mean over its models and metrics; a data set that a price does not touch, or
    that cannot be simulated without it, says nothing about it.
    """
    errors = {(each.without, each.data_set, each.model, each.gpu, each.metric): each.mape_pct
              for each in ablations if each.mape_pct is not None and each.data_set != left_out}
    changes = defaultdict(lambda: defaultdict(list))
    for (without, *place), error in errors.items():
        if without != NOTHING and (NOTHING, *place) in errors:
            changes[without][place[0]].append(error - errors[NOTHING, *place])
    return tuple(without for without, by_set in changes.items() if fmean(map(fmean, by_set.values())) < 0)


def together(prices: Iterable[Price]) -> tuple[str, ...]:
    """Return the overrides that take all the prices away."""
    overrides = [each for price in prices for each in price.overrides]
    names = [each.removeprefix(WITHOUT).strip("[]") for each in overrides if each.startswith(WITHOUT)]
    others = dict.fromkeys(each for each in overrides if not each.startswith(WITHOUT))
    return (*others, f"{WITHOUT}[{', '.join(names)}]") if names else tuple(others)


def _prices(ablations: Iterable[Ablated]) -> dict[str, Price]:
    return {each.without: Price(each.without, each.overrides) for each in ablations}


def _chosen(each: Ablated, dropped: tuple[str, ...]) -> Chosen:
    shared = {name: getattr(each, name) for name in Chosen.__struct_fields__ if name != "dropped"}
    return Chosen(dropped=dropped, **shared)
