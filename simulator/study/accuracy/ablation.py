"""The contribution of each price of `operators`: the score without it, one at a time, all others kept."""
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from simulator import registry
from simulator.assembly.latency import Readings
from simulator.study.accuracy.data_set import Opened
from simulator.study.accuracy.predict import Ways, predict
from simulator.study.accuracy.rows import Row, rows_of

BACKEND = "operators"
METRICS = ("tpot", "ttft")
NOTHING = ""


class Price(NamedTuple):
    """A price, and the overrides that take it away."""

    name: str
    overrides: tuple[str, ...]


class Ablated(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one metric of a deployment without one price.

    without : its name; "": all prices are kept. overrides : keys that take the price away.
    metric : "": the deployment cannot be simulated like this.
    mape_pct, median_ape_pct, bias_pct : as in `Row`; None: not compared.
    """

    without: str
    overrides: tuple[str, ...]
    data_set: str
    model: str
    gpu: str
    metric: str
    mape_pct: float | None
    bias_pct: float | None
    median_ape_pct: float | None = None


def all_prices() -> tuple[Price, ...]:
    """Return the prices to take away: first none; last those without names."""
    left_out = registry.load("latency", BACKEND).left_out
    return (
        Price(NOTHING, ()),
        Price("vLLM's host and front end", ('latency.host.defaults="none"',)),
        Price("asynchronous scheduling", ("engine.async_scheduling=false",)),
        Price("padding to CUDA graphs", (
            'engine.cuda_graphs.mode="none"', "engine.cuda_graphs.eager_us_per_layer=0")),
        Price("collectives as measured", ('latency.collective={backend="busbw"}',)),
        Price("skewed loads of experts", ('latency.expert_load="balanced"',)),
        Price("Marlin on Hopper", ('latency.expert_kernel="triton"',)),
        *(Price(what, (f'latency.without=["{name}"]',)) for name, (what, _) in left_out.items()))


def ablate(data_sets: list[Opened], prices: Iterable[Price] | None = None,
           tell: Callable[[str], None] = lambda line: None) -> tuple[Ablated, ...]:
    """Simulate all runs of all data sets without each price, one at a time.

    prices : default: `all_prices`.
    tell : callback, called with a line when a price is done.
    """
    cases = [[] if each.absent else each.cases() for each in data_sets]
    found = []
    for price in all_prices() if prices is None else prices:
        readings = Readings()
        for data_set, of_set in zip(data_sets, cases):
            ways = Ways(BACKEND, readings, price.overrides)
            rows, _ = rows_of(data_set, BACKEND, of_set, [predict(data_set, case, ways) for case in of_set])
            found += [_ablated(price, row) for row in rows if row.metric in (*METRICS, "")]
        tell(f"without {price.name or 'nothing'}: done")
    return tuple(found)


def _ablated(price: Price, row: Row) -> Ablated:
    return Ablated(without=price.name, overrides=price.overrides, data_set=row.data_set, model=row.model, gpu=row.gpu,
                   metric=row.metric, mape_pct=row.mape_pct, bias_pct=row.bias_pct, median_ape_pct=row.median_ape_pct)
