"""Sends requests when they are due, whatever is outstanding, and tells the workload when they have ended."""
import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.study.observe.answer import OK, Answer
from simulator.study.observe.client import Client, Order
from simulator.study.observe.clock import Clock, sleep_or
from simulator.study.observe.orders import Orders
from simulator.workload.base import Workload

STOP_LOOK_S = 0.05              # how often a signal is looked for


class Seen(NamedTuple):
    """A request that has ended.

    planned_ns : when the workload wants it sent. free_ns : when a place among those in flight was free for it, by the
    workload or by us, if it had to wait for one; else as planned. Both as answer's times.
    """

    row: int
    planned_ns: int
    free_ns: int
    answer: Answer


class Load(NamedTuple):
    """What is to be sent.

    workload, source : requests, and simulator.engine.sources.live.Live of them. most : in flight at once; None: no
    limit. share : (k, n), every n-th row from k on, of requests whose times are fixed; others are another process's.
    end_ns : of the workload's clock; nobody comes at or after it, None: no end.
    num_measured : rows that are no warm-ups; these stand behind them.
    waits : bool (n,), requests that have times of their own and wait for places of the workload's; None: nobody does.
    """

    workload: Workload
    source: object
    orders: Orders
    num_measured: int
    most: int | None = None
    share: tuple[int, int] = (0, 1)
    end_ns: int | None = None
    waits: np.ndarray | None = None


def waiting_rows(workload: Workload) -> np.ndarray | None:
    """Return which requests have times of their own and wait for places."""
    script = workload.script
    if script is None or not any(group.has_times and group.slots is not None for group in script.groups):
        return None
    waits = np.zeros(len(workload), bool)
    begins = np.arange(len(workload) + 1) if script.play_begins is None else script.play_begins
    for group in script.groups:
        if group.has_times and group.slots is not None:
            for play in group.plays.tolist():
                waits[begins[play]:begins[play + 1]] = True
    return waits


class Sender:
    """Sends a load.

    client, clock : the server, and time, whose 0 is that of the workload's.
    tell : called with each Seen as it ends, and when the first request was planned that is no warm-up.
    stops : says whether to stop, by a signal: what is under way is given up.
    """

    def __init__(self, load: Load, client: Client, clock: Clock, tell: Callable[[Seen, int], None],
                 stops: Callable[[], bool] = lambda: False):
        self._load, self._client, self._clock, self._tell, self._stops = load, client, clock, tell, stops
        self._source, self._orders = load.source, load.orders
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task] = set()
        self._queue: deque[tuple[int, int]] = deque()
        self._num_in_flight = 0
        self._fault: BaseException | None = None
        self.first_ns: int | None = load.source.next_ns if load.source.is_fixed else None
        """When the first request was planned that is no warm-up; None: it has not come."""
        self.was_stopped = False
        """A signal, or the end of the load, ended it before all had come."""

    async def run(self) -> None:
        """Send all, and wait for the last answer."""
        watch = asyncio.create_task(self._watch())
        try:
            while not self.was_stopped and self._fault is None:
                due_ns = self._source.next_ns
                left_s = None if self._load.end_ns is None else (self._load.end_ns - self._clock.now_ns()) / 1e9
                if due_ns is None and not self._num_in_flight:
                    break
                if left_s is not None and left_s <= 0:
                    self.was_stopped = True
                elif due_ns is None:
                    await sleep_or(self._changed, left_s)
                    self._changed.clear()
                else:
                    await self._send_next(due_ns)
        finally:
            watch.cancel()
            await self._end_all()
        if self._fault is not None:
            raise self._fault

    async def _send_next(self, due_ns: int) -> None:
        source, (place, step) = self._source, self._load.share
        ahead, row = None, len(self._load.workload) - source.num_left
        if source.is_fixed and row % step != place:
            source.take()
            return
        if source.is_fixed:         # who comes next is known: what it sends is ready when its time has come
            ahead = self._orders.order(row, due_ns)
        until_ns = due_ns if self._load.end_ns is None else min(due_ns, self._load.end_ns)
        if await self._clock.wait_until(until_ns, self._changed, lambda: self._still(due_ns)) and until_ns == due_ns:
            self._begin(source.take(), due_ns, ahead)
            await asyncio.sleep(0)

    def _still(self, due_ns: int) -> bool:
        return not self.was_stopped and self._source.next_ns == due_ns

    def _begin(self, row: int, due_ns: int, ahead: Order | None) -> None:
        waits = self._load.waits is not None and self._load.waits[row]
        planned_ns = int(self._load.workload.scheduled_ns[row]) if waits else due_ns
        if self.first_ns is None and row < self._load.num_measured:
            self.first_ns = planned_ns
        if self._load.most is not None and self._num_in_flight >= self._load.most:
            self._queue.append((row, planned_ns))
            return
        self._start(row, planned_ns, due_ns, ahead)

    def _start(self, row: int, planned_ns: int, free_ns: int, ahead: Order | None = None) -> None:
        self._num_in_flight += 1
        task = asyncio.create_task(self._one(row, planned_ns, free_ns, ahead))
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:    # of the program: answers' are in them
            self._fault = self._fault or fault
            self._changed.set()

    async def _one(self, row: int, planned_ns: int, free_ns: int, ahead: Order | None) -> None:
        answer = Answer(self._orders.keeps(row))
        try:
            await self._client.exchange(ahead or self._orders.order(row, free_ns), answer)
        except asyncio.CancelledError:
            if answer.is_done:      # and the end of its stream was waited for
                answer.close()
            answer.fail("interrupted", "the load generator was stopped")
            answer.end_ns = answer.end_ns or self._clock.now_ns()
        if self._orders.keeps(row) and answer.status == OK:
            self._orders.learn(row, answer.text, answer.token_ids)
        if answer.status != "interrupted":
            self._source.ended(row, _status_of(answer), max(answer.end_ns, planned_ns))
        self._num_in_flight -= 1
        self._tell(Seen(row, planned_ns, free_ns, answer), self.first_ns or 0)
        if self._queue and not self.was_stopped:
            self._start(*self._queue.popleft(), self._clock.now_ns())
        self._changed.set()

    async def _watch(self) -> None:
        while not self._stops():
            await asyncio.sleep(STOP_LOOK_S)
        self.was_stopped = True
        self._changed.set()

    async def _end_all(self) -> None:
        """Wait for what is under way, or give it up; what waits in the queue was never sent."""
        await asyncio.sleep(0)      # one that has not begun would not notice
        if self.was_stopped or self._fault is not None:
            for task in self._tasks:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for row, planned_ns in self._queue:
            answer = Answer()
            answer.fail("interrupted", "the load generator was stopped before it was sent")
            self._tell(Seen(row, planned_ns, planned_ns, answer), self.first_ns or 0)


def _status_of(answer: Answer) -> int:
    """Return what the workload is told of an end: whether those that wait for it may come."""
    if answer.status == OK:
        return records.COMPLETED
    if answer.status in ("timeout", "gave_up"):
        return records.TIMED_OUT
    return records.REJECTED if answer.status.startswith("http_") else records.FAILED
