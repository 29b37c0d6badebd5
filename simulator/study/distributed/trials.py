"""The trials of a study at the workers of Dask, a chunk of a second or so at a time; the client alone writes.

A worker that is lost takes no result with it that has been written. Its chunk is done again; one that workers die of is
taken apart, until the run is found that kills them.
"""
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from simulator.study.distributed.dask_client import check_here
from simulator.study.sweep.bench import Bench
from simulator.study.sweep.sources import hash_of_sources
from simulator.study.sweep.trial import KILLED, Finished, Trial

LOOK_S = 0.01                   # between two looks at what has ended
CHUNK_S = 1.0
MOST_AT_ONCE = 256
AHEAD = 2                       # chunks for each thread: one that runs, one that is there already
GRACE_S = 20.0                  # for what runs, once no more is to begin
BLAMED = "workers died of it (Dask's allowed failures)"


def at_workers(client: Any, stop: Callable[[], bool] = lambda: False) -> Callable[..., Iterator[Finished]]:
    """Return what runs trials in place of processes of this machine.

    `Laboratory` calls it with a Bench and the trials.

    client : distributed.Client. stop : True: no chunk is submitted any more.
    """
    return lambda bench, trials: _Fleet(client, bench, stop).run(trials)


class _Fleet:
    """Chunks on their way."""

    def __init__(self, client: Any, bench: Bench, stop: Callable[[], bool]):
        self._client, self._stop = client, stop
        self._bench, self._ours = pickle.dumps(bench), hash_of_sources()
        self._flying: dict[Any, list[Trial]] = {}
        self._trial_s: float | None = None

    def run(self, trials: Iterable[Trial]) -> Iterator[Finished]:
        """Yield what becomes of trials, as chunks end."""
        waiting, alone, stopped_s = deque(trials), deque(), None
        try:
            while waiting or alone or self._flying:
                if stopped_s is None and self._stop():
                    stopped_s = time.monotonic()
                if stopped_s is not None and (not self._flying or time.monotonic() - stopped_s > GRACE_S):
                    return
                while stopped_s is None and (waiting or alone) and len(self._flying) < self._most():
                    self._submit([alone.popleft()] if alone else
                                 [waiting.popleft() for _ in range(min(self._size(), len(waiting)))])
                ended = [future for future in self._flying if future.done()]
                for future in ended:
                    yield from self._land(future, waiting, alone)
                if not ended:
                    time.sleep(LOOK_S)
        finally:
            self._client.cancel(list(self._flying))

    def _most(self) -> int:
        return AHEAD * max(1, sum(self._client.nthreads().values()))

    def _size(self) -> int:
        if self._trial_s is None:
            return 1
        return max(1, min(MOST_AT_ONCE, int(CHUNK_S / max(self._trial_s, 1e-6))))

    def _submit(self, chunk: list[Trial]) -> None:
        future = self._client.submit(_run_chunk, self._bench, [tuple(trial) for trial in chunk], self._ours, pure=False)
        self._flying[future] = chunk

    def _land(self, future: Any, waiting: deque, alone: deque) -> Iterator[Finished]:
        from distributed import CancelledError, KilledWorker  # an extra; there is a client of it

        chunk = self._flying.pop(future)
        try:
            ends = future.result()
        except CancelledError:                  # lost with its worker
            waiting.extendleft(reversed(chunk))
            return
        except KilledWorker:
            if len(chunk) > 1:
                alone.extend(chunk)
                return
            trial = chunk[0]
            yield Finished(trial.id, trial.index, trial.replication, trial.seed, KILLED, BLAMED, 1, {}, {}, 0.0)
            return
        for content in ends:
            finished = Finished(*content)
            self._trial_s = (finished.wall_s if self._trial_s is None
                             else 0.8 * self._trial_s + 0.2 * finished.wall_s)
            yield finished


def _run_chunk(bench: bytes, trials: list[tuple], expected: str) -> list[tuple]:
    """Run trials, at a worker, which keeps what it has read for the next chunk."""
    check_here(expected)
    kept = _bench_of(bench)
    return [tuple(kept.run(Trial(*trial))) for trial in trials]


@lru_cache(4)
def _bench_of(content: bytes) -> Bench:
    return pickle.loads(content)
