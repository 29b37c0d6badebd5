"""What this client can take, measured on loopback: messages a second, and how late it sends.

The client is the one that measures servers, all of it; so what it cannot do here it cannot do there.
"""
import asyncio
import json

import numpy as np

from simulator.study.observe.answer import Answer
from simulator.study.observe.client import Client, Order
from simulator.study.observe.clock import Clock
from simulator.study.observe.loopback import Loopback
from simulator.study.observe.sender import Load, Seen, Sender

STREAMS = 32                    # side by side, of as many messages as come
MANY = 1_000_000_000
RATE_PER_S = 500                # of requests with one token each, whose lag is measured
PERCENTILES = (50, 99)
LEAD_NS = 50_000_000


def self_test(duration_s: float) -> dict:
    """Measure for so long, and return what server.json has of it.

    Half of the time as many messages as the client takes come by `STREAMS` streams; then requests go out at
    `RATE_PER_S`.
    """
    with Loopback() as server:
        messages_per_s = asyncio.run(_flood(server.url, duration_s / 2))
        lags_ms = asyncio.run(_ticks(server.url, duration_s / 2))
    return {"duration_s": duration_s, "streams": STREAMS, "messages_per_s": round(messages_per_s, 1),
            "requests_per_s": RATE_PER_S,
            "lag_ms": {f"p{each}": round(float(np.percentile(lags_ms, each)), 4) for each in PERCENTILES}}


async def _flood(url: str, duration_s: float) -> float:
    """Return the messages a second that come by many streams."""
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
    """Return how much later than it could a request was sent.

    It could when it was planned, or when a place in flight was free.
    """
    return seen.answer.sent_ns - seen.free_ns


class Ticks:
    """Requests of one token at equal distances.

    Workload, source and orders in one, as a Load takes them.
    """

    is_fixed = True

    def __init__(self, count: int, period_ns: int):
        self._count = self.num_left = count
        self._period_ns = period_ns

    def __len__(self):
        return self._count

    @property
    def next_ns(self) -> int | None:
        """When the next one is due."""
        return (self._count - self.num_left) * self._period_ns if self.num_left else None

    def take(self) -> int:
        """Return the number of the next one."""
        self.num_left -= 1
        return self._count - self.num_left - 1

    def ended(self, row: int, status: int, now_ns: int) -> None:
        """Nobody waits for it."""

    def keeps(self, row: int) -> bool:
        """Nobody repeats an answer."""
        return False

    def order(self, row: int, due_ns: int) -> Order:
        """Return the request, which is always the same."""
        return _order(1, timeout_s=10.0)


def _order(num_tokens: int, timeout_s: float) -> Order:
    return Order("/v1/completions", json.dumps({"max_tokens": num_tokens}).encode(), timeout_s)
