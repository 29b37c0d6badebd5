"""The trials of a study at the workers of Dask, a chunk of a second or so at a time; the client alone writes.

A worker that is lost takes no written result with it. Its chunk is run again; a chunk that workers die of is split,
until the run that kills them is found.
"""
import math
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from simulator.study.distributed.dask_client import check_here
from simulator.study.sweep.bench import Bench
from simulator.study.sweep.sources import hash_of_sources
from simulator.study.sweep.trial import KILLED, Finished, Trial

LOOK_S = 0.01                   # between two checks for chunks that have ended
CHUNK_S = 1.0
WORKERS_S = 1.0                 # between two looks at the list of workers
MOST_AT_ONCE = 256
AHEAD = 2                       # chunks for each thread: one that runs, one that waits at the worker
NO_WORKERS_S = 600.0            # without workers, after which the study ends: the next start runs the missing trials
GRACE_S = 20.0                  # for running chunks, once no further one is submitted
BLAMED = "workers died of it (Dask's allowed failures)"


def at_workers(client: Any, stop: Callable[[], bool] = lambda: False) -> Callable[..., Iterator[Finished]]:
    """Return a function that runs trials in place of processes of this machine.

    `Laboratory` calls it with a Bench and the trials.

    client : distributed.Client. stop : True: no chunk is submitted any more.
    """
    return lambda bench, trials: _Fleet(client, bench, stop).run(trials)


class _Chunk(NamedTuple):
    """Trials that are sent together.

    turns : times that the chunk was run alone.
    """

    trials: list[Trial]
    turns: int = 0

    def suspected(self, retries: int) -> list["_Chunk"]:
        """Return the chunks to run alone after workers have died.

        Empty: the chunk is one trial, and workers die of it.
        """
        middle = len(self.trials) // 2
        if self.turns == 0:
            return [self._replace(turns=1)]
        if middle:
            return [self._replace(trials=self.trials[:middle]), self._replace(trials=self.trials[middle:])]
        return [self._replace(turns=self.turns + 1)] if self.turns <= retries else []


class _Fleet:
    """The chunks in flight."""

    def __init__(self, client: Any, bench: Bench, stop: Callable[[], bool]):
        self._client, self._stop = client, stop
        self._bench, self._ours, self._retries = pickle.dumps(bench), hash_of_sources(), bench.rules.retries
        self._flying: dict[Any, _Chunk] = {}
        self._trial_s: float | None = None
        self._room, self._looked_s, self._seen_s = 0, -math.inf, time.monotonic()

    def run(self, trials: Iterable[Trial]) -> Iterator[Finished]:
        """Yield the results of trials, as chunks end."""
        waiting, alone, stopped_s = deque(trials), deque[_Chunk](), None
        try:
            while waiting or alone or self._flying:
                if stopped_s is None and self._stop():
                    stopped_s = time.monotonic()
                if self._is_deserted():
                    return
                if stopped_s is not None and (not self._flying or time.monotonic() - stopped_s > GRACE_S):
                    return
                if stopped_s is None:
                    self._send(waiting, alone)
                ended = [future for future in self._flying if future.done()]
                for future in ended:
                    yield from self._land(future, waiting, alone)
                if not ended:
                    time.sleep(LOOK_S)
        finally:
            self._client.cancel(list(self._flying))

    def _send(self, waiting: deque, alone: deque) -> None:
        if alone:
            if not self._flying:
                self._submit(alone.popleft())
            return
        while waiting and len(self._flying) < self._most():
            self._submit(_Chunk([waiting.popleft() for _ in range(min(self._size(), len(waiting)))]))

    def _most(self) -> int:
        """Return how many chunks may be in flight: workers join and leave."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= WORKERS_S:
            threads, self._looked_s = sum(self._client.nthreads().values()), now_s
            self._room = AHEAD * max(1, threads)
            self._seen_s = now_s if threads else self._seen_s
        return self._room

    def _is_deserted(self) -> bool:
        """Return whether there has been no worker for `NO_WORKERS_S`."""
        self._most()
        return time.monotonic() - self._seen_s > NO_WORKERS_S

    def _size(self) -> int:
        if self._trial_s is None:
            return 1
        return max(1, min(MOST_AT_ONCE, int(CHUNK_S / max(self._trial_s, 1e-6))))

    def _submit(self, chunk: "_Chunk") -> None:
        future = self._client.submit(_run_chunk, self._bench, [tuple(trial) for trial in chunk.trials], self._ours,
                                     pure=False)
        self._flying[future] = chunk

    def _land(self, future: Any, waiting: deque, alone: deque) -> Iterator[Finished]:
        from distributed import CancelledError, KilledWorker  # an extra; there is a client of it

        chunk = self._flying.pop(future)
        try:
            ends = future.result()
        except CancelledError:                  # lost with its worker
            waiting.extendleft(reversed(chunk.trials))
            return
        except KilledWorker:
            alone.extend(chunk.suspected(self._retries))
            if not chunk.suspected(self._retries):
                trial = chunk.trials[0]
                yield Finished(trial.id, trial.index, trial.replication, trial.seed, KILLED, BLAMED, chunk.turns, {},
                               {}, 0.0)
            return
        for content in ends:
            finished = Finished(*content)
            self._trial_s = (finished.wall_s if self._trial_s is None
                             else 0.8 * self._trial_s + 0.2 * finished.wall_s)
            yield finished


def _run_chunk(bench: bytes, trials: list[tuple], expected: str) -> list[tuple]:
    """Run trials, at a worker, which keeps the bench for the next chunk."""
    check_here(expected)
    if getattr(_KEPT, "content", None) != bench:        # the worker serves one study after the other
        _KEPT.content, _KEPT.bench = bench, pickle.loads(bench)
    return [tuple(_KEPT.bench.run(Trial(*trial))) for trial in trials]


_KEPT = threading.local()       # threads of a worker share nothing
