"""The cost of a run, in total and per unit of output."""
import math
from typing import NamedTuple

from simulator.domain.costs import Price
from simulator.domain.run import Run
from simulator.results.paid_time import NS_PER_HOUR, PaidTime, Rate
from simulator.results.uptime import measured_ns


class PricedPool(NamedTuple):
    """The cost of a pool.

    places : rows of `Run.replicas` that it has. rate : of a place.
    """

    places: int
    rate: Rate


class Bill(NamedTuple):
    """The prices of an experiment.

    encode : cost per hour of all encode pools. prices : of accelerators, where costs were computed from them.
    """

    pools: tuple[PricedPool, ...]
    encode: float
    prices: tuple[tuple[str, Price], ...]


def cost_of(run: Run, bill: Bill, summary: dict) -> dict:
    """Return the part `cost` of summary.json.

    A replica costs from the moment it is wanted until it is off, within the window where one is measured, in each hour
    of the day by its price in that hour. Per
    million tokens: cost per hour x 1e6 / (3600 x tokens per second), with the throughputs of the summary; the other
    ratios in the same way. None where the divisor is 0.
    """
    paid = PaidTime(run, any(pool.rate.by_hour for pool in bill.pools))
    first, parts = 0, [bill.encode * measured_ns(run) / NS_PER_HOUR]
    for pool in bill.pools:
        parts.append(paid.cost(slice(first, first + pool.places), pool.rate))
        first += pool.places
    total, hours = math.fsum(parts), measured_ns(run) / NS_PER_HOUR
    per_hour = total / hours if hours else None

    def per(count: float, rate_per_s: float | None) -> float | None:
        return per_hour * count / (3600 * rate_per_s) if rate_per_s and per_hour is not None else None

    return {
        "currency": next((price.currency for _, price in bill.prices), None),
        "total": total, "per_hour": per_hour,
        "cost_per_million_output_tokens": per(1e6, summary["output_throughput"]),
        "cost_per_million_tokens": per(1e6, summary["total_token_throughput"]),
        "cost_per_thousand_requests": per(1e3, summary["request_throughput"]),
        "cost_per_good_request": per(1, summary["request_goodput"]),
        "prices": [{"accelerator": name, "per_gpu_hour": price.per_gpu_hour, "source": price.source,
                    "date": price.date} for name, price in bill.prices]}


def sentence(cost: dict) -> str:
    """Return the cost of the run, and of a million output tokens."""
    unit, tokens = cost["currency"] or "", cost["cost_per_million_output_tokens"]
    unit = f" {unit}" if unit else ""
    hourly = "" if cost["per_hour"] is None else f", {cost['per_hour']:,.2f}{unit} an hour"
    each = "" if tokens is None else f", {tokens:,.4f}{unit} a million output tokens"
    return f"{cost['total']:,.4f}{unit}{hourly}{each}"
