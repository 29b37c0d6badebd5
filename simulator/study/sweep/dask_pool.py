"""Many pieces of work at the workers of Dask; the counterpart of `pool`, with its face.

The client hands out about a second's work at a time and takes the answers, so that it alone writes: workers need no disk
that all see. Threads of a worker share nothing: each has a copy of what is shared.
"""
import hashlib
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from distributed import CancelledError, KilledWorker

from simulator.study.distributed.dask_client import check_here
from simulator.study.distributed.sources import hash_of_sources
from simulator.study.sweep.pool import UNKNOWN, Pace, Rules, Served

LOOK_S = 0.01                   # between two looks at what has ended
WORKERS_S = 1.0                 # between two looks at who serves: workers come and go
CHUNKS_EACH = 2                 # that a thread of a worker is handed, so that it never waits for the next
MOST_LOST = 3                   # times that all workers may be gone before an item is given up


def serve_at(client: Any, work: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any],
             rules: Rules) -> Iterator[Served]:
    """Yield what `work(shared, item)` returns for each item, as soon as it is done; parameters as those of `serve`.

    Where a worker dies others take over, as Dask does it, `allowed-failures` times. Then what it had is served by itself,
    half by half, until the item is found of which workers die; it is tried `rules.retries` times more. `rules.num_processes` and `rules.kill_after_s` do not count: who started the workers says
    how many there are, and a process may hold several.

    client : distributed.Client.

    Raises
    ------
    RuntimeError
        The work raised something; what was handed out is cancelled then, as whenever the caller asks for no more.
    InputErrors
        A worker runs other sources.
    """
    out = _Out(client, work, shared, items, rules)
    try:
        yield from out.serve()
    finally:
        out.cancel()


class _Task(NamedTuple):
    item: Any
    attempts: int = 0
    times_lost: int = 0         # with all workers
    is_suspect: bool = False    # it is served while nothing else is


class _Out:
    """What is handed out."""

    def __init__(self, client: Any, work: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any], rules: Rules):
        self._client, self._work, self._items, self._rules = client, work, iter(items), rules
        self._shared = pickle.dumps(shared)
        self._token = hashlib.sha256(self._shared).hexdigest()
        self._held = None                           # the same, at the workers
        self._futures: dict[Any, list[_Task]] = {}
        self._alone: deque[list[_Task]] = deque()   # what is served while nothing else is: Dask suspects all it finds
        self._pace = Pace()
        self._room, self._looked_s = 0, -WORKERS_S

    def serve(self) -> Iterator[Served]:
        """Yield what becomes of the items, until none is left or it is to stop."""
        stopped_s = None
        while True:
            now_s = time.monotonic()
            if stopped_s is None and self._rules.stop():
                stopped_s = now_s
            if stopped_s is None:
                self._hand_out(now_s)
            if not self._futures or (stopped_s is not None and now_s - stopped_s > self._rules.grace_s):
                if stopped_s is not None or not self._alone:
                    return
                continue
            ended = [future for future in self._futures if future.done()]     # `wait` would raise what one has met
            for future in ended:
                yield from self._take(future, self._futures.pop(future))
            if not ended:
                time.sleep(LOOK_S)

    def cancel(self) -> None:
        """Let workers drop what they have not begun, and forget what is shared."""
        self._client.cancel([*self._futures, *([self._held] if self._held is not None else [])])
        self._futures.clear()

    def _hand_out(self, now_s: float) -> None:
        if now_s - self._looked_s >= WORKERS_S:
            self._room, self._looked_s = CHUNKS_EACH * max(1, sum(self._client.nthreads().values())), now_s
        if self._alone:
            if not self._futures:
                self._submit(self._alone.popleft())
            return
        while len(self._futures) < self._room and (tasks := self._chunk()):
            self._submit(tasks)

    def _submit(self, tasks: list[_Task]) -> None:
        if self._held is None:
            self._held = self._client.scatter(self._shared, hash=False, broadcast=True)
        future = self._client.submit(_serve_chunk, self._work, self._held, self._token, [task.item for task in tasks],
                                     hash_of_sources(), pure=False, retries=0)
        self._futures[future] = tasks

    def _chunk(self) -> list[_Task]:
        tasks: list[_Task] = []
        size = self._pace.items_at_once()
        while len(tasks) < size and (item := next(self._items, self)) is not self:
            tasks.append(_Task(item))
        return tasks

    def _take(self, future: Any, tasks: list[_Task]) -> Iterator[Served]:
        """Yield what a future holds; let what it lost be tried again, one by one."""
        try:
            answers = future.result()
        except KilledWorker:                        # of these, again and again
            yield from self._retry(tasks)
        except CancelledError:                      # the last worker that had what is shared has gone
            self._held = None
            if again := [task._replace(times_lost=task.times_lost + 1) for task in tasks
                         if task.times_lost < MOST_LOST]:
                self._alone.append(again)
            for task in tasks:
                if task.times_lost >= MOST_LOST:
                    yield Served(task.item, None, UNKNOWN, task.attempts + 1)
        else:
            for task, (result, wall_s) in zip(tasks, answers, strict=True):
                self._pace.note(wall_s)
                yield Served(task.item, result, None, task.attempts + 1)

    def _retry(self, tasks: list[_Task]) -> Iterator[Served]:
        middle = len(tasks) // 2
        if not tasks[0].is_suspect:                 # others were there, too
            self._alone.append([task._replace(is_suspect=True) for task in tasks])
        elif middle:                                # whose fault it was is open
            self._alone += [tasks[:middle], tasks[middle:]]
        elif tasks[0].attempts < self._rules.retries:
            self._alone.append([tasks[0]._replace(attempts=tasks[0].attempts + 1)])
        else:
            yield Served(tasks[0].item, None, UNKNOWN, tasks[0].attempts + 1)


# ---- at a worker

_KEPT = threading.local()


def _serve_chunk(work: Callable[[Any, Any], Any], shared: bytes, token: str, items: list[Any],
                 expected: str) -> list[tuple[Any, float]]:
    """Return what each item's work returns, and its wall time."""
    check_here(expected)
    if getattr(_KEPT, "token", None) != token:      # one study after the other
        _KEPT.token, _KEPT.shared = token, pickle.loads(shared)
    answers = []
    for item in items:
        began_s = time.perf_counter()
        answers.append((work(_KEPT.shared, item), time.perf_counter() - began_s))
    return answers
