"""The capacity of this client, measured on loopback: messages a second, and how late it sends.

The whole client of real measurements runs here; a rate that it cannot reach here it cannot reach there.
"""
import asyncio
import json

import numpy as np

from simulator.study.observe.answer import Answer
from simulator.study.observe.client import Client, Order
from simulator.study.observe.clock import Clock
from simulator.study.observe.loopback import Loopback
from simulator.study.observe.sender import Load, Seen, Sender

STREAMS = 32                    # side by side, each as fast as it can
MANY = 1_000_000_000
RATE_PER_S = 500                # of requests with one token each, for the lag
PERCENTILES = (50, 99)
LEAD_NS = 50_000_000


def self_test(duration_s: float) -> dict:
    """Measure for some seconds, and return the entry for server.json.

    For half of the time `STREAMS` streams deliver as many messages as the client can read; then requests are sent at
    `RATE_PER_S`.
    """
    with Loopback() as server:
        messages_per_s = asyncio.run(_flood(server.url, duration_s / 2))
        lags_ms = asyncio.run(_ticks(server.url, duration_s / 2))
    return {"duration_s": duration_s, "streams": STREAMS, "messages_per_s": round(messages_per_s, 1),
            "requests_per_s": RATE_PER_S,
            "lag_ms": {f"p{each}": round(float(np.percentile(lags_ms, each)), 4) for each in PERCENTILES}}


async def _flood(url: str, duration_s: float) -> float:
    """Return the messages a second that are read from many streams."""
    clock, answers = Clock(), [Answer() for _ in range(STREAMS)]
    order = _order(MANY, timeout_s=duration_s)
    async with Client(url, clock) as client:
        await asyncio.gather(*(client.exchange(order, answer) for answer in answers))
    return sum(len(answer.times_ns) for answer in answers) / duration_s


async def _ticks(url: str, duration_s: float) -> list[float]:
    """Return how late requests went out, in ms."""
    ticks, seen = Ticks(max(int(duration_s * RATE_PER_S), 1), 1_000_000_000 // RATE_PER_S), []
    clock = Clock()
    clock = Clock(clock.origin_ns + LEAD_NS)
    async with Client(url, clock) as client:
        await Sender(Load(ticks, ticks, ticks, len(ticks)), client, clock, lambda each, _: seen.append(each)).run()
    return [lag_ns(each) / 1e6 for each in seen if each.answer.sent_ns is not None] or [float("inf")]


def lag_ns(seen: Seen) -> int:
    """Return how much later than possible a request was sent.

    The earliest possible instant is the planned one, or when a place in flight was free.
    """
    return seen.answer.sent_ns - seen.free_ns


class Ticks:
    """Requests of one token at equal intervals.

    Workload, source and orders in one, in the form that a Load takes.
    """

    is_fixed = True

    def __init__(self, count: int, period_ns: int):
        self._count = self.num_left = count
        self._period_ns = period_ns

    def __len__(self):
        return self._count

    @property
    def next_ns(self) -> int | None:
        """Due time of the next request."""
        return (self._count - self.num_left) * self._period_ns if self.num_left else None

    def take(self) -> int:
        """Return the number of the next request."""
        self.num_left -= 1
        return self._count - self.num_left - 1

    def ended(self, row: int, status: int, now_ns: int) -> None:
        """Do nothing: no request waits for the end of another."""

    def keeps(self, row: int) -> bool:
        """Return False: no prompt repeats an answer."""
        return False

    def order(self, row: int, due_ns: int) -> Order:
        """Return the request; all are equal."""
        return _order(1, timeout_s=10.0)


def _order(num_tokens: int, timeout_s: float) -> Order:
    return Order("/v1/completions", json.dumps({"max_tokens": num_tokens}).encode(), timeout_s)
