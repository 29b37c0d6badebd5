"""Sends requests when they are due, however many are outstanding, and reports their ends to the workload."""
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

STOP_LOOK_S = 0.05              # interval of checks for a signal


class Seen(NamedTuple):
    """A request that has ended.

    planned_ns : planned time of sending. free_ns : when a place in flight was free for it, if the workload or the
    client made it wait for one; else as planned. Both in the clock of the answer's times.
    """

    row: int
    planned_ns: int
    free_ns: int
    answer: Answer


class Load(NamedTuple):
    """The requests to be sent.

    workload, source : requests, and their simulator.engine.sources.live.Live. most : in flight at once; None: no
    limit. share : (k, n), every n-th row from k on, of requests with fixed times; the others are another process's.
    end_ns : of the workload's clock; no request is sent at or after it, None: no end.
    num_measured : number of measured rows; warm-ups follow them.
    waits : bool (n,), requests with times of their own that wait for places of the workload; None: there are none.
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
    """Return a mask of requests that have times of their own and wait for places."""
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

    client, clock : the server, and time, from the workload's 0.
    tell : callback, called with each Seen as it ends, and the planned time of the first measured request.
    stops : returns whether to stop, after a signal: requests in flight are given up.
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
        """Planned time of the first measured request; None: it was not sent yet."""
        self.was_stopped = False
        """Whether a signal, or the end of the load, stopped it before all were sent."""

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
        if source.is_fixed:         # the next request is known: its body is made before its time
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
        if not task.cancelled() and (fault := task.exception()) is not None:    # a fault of the program
            self._fault = self._fault or fault
            self._changed.set()

    async def _one(self, row: int, planned_ns: int, free_ns: int, ahead: Order | None) -> None:
        answer = Answer(self._orders.keeps(row))
        try:
            await self._client.exchange(ahead or self._orders.order(row, free_ns), answer)
        except asyncio.CancelledError:
            if answer.is_done:      # only the end of its stream was missing
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
        """Wait for requests in flight, or give them up; requests in the queue were never sent."""
        await asyncio.sleep(0)      # a task that has not started would not notice
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
    """Return the status for the workload: it decides whether dependent requests may be sent."""
    if answer.status == OK:
        return records.COMPLETED
    if answer.status in ("timeout", "gave_up"):
        return records.TIMED_OUT
    return records.REJECTED if answer.status.startswith("http_") else records.FAILED
