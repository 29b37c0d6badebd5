"""One run of replicas that do not interact, in parts that workers of Dask simulate."""
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from simulator.assembly import assemble, parts
from simulator.study.distributed.dask_client import check_here
from simulator.study.sweep.sources import hash_of_sources

LOOK_S = 0.02                   # between two checks for parts that have ended, and for a stop
MOST_FRUITLESS = 3              # rounds in which all remaining parts are lost


class InParts(NamedTuple):
    """Makes a run of parts, in place of `assemble.build`.

    client : distributed.Client. count : parts, at the most; 0: two for each worker's thread.
    tell : callback, called with a sentence for the user.
    """

    client: Any
    count: int = 0
    tell: Callable[[str], None] = lambda text: None

    def __call__(self, prepared: assemble.Prepared, sink, monitor=None, threads: int = 1) -> "Pieces":
        """Return the run, to be run once.

        Raises
        ------
        InputErrors
            The cluster is one piece.
        """
        count = self.count or 2 * sum(self.client.nthreads().values())
        return Pieces(self, prepared, sink, monitor, parts.tasks_of(prepared, sink, count))


class Pieces:
    """A run in parts; parameters as in `assemble.build`."""

    def __init__(self, made_by: InParts, prepared: assemble.Prepared, sink, monitor, tasks: list[parts.Task]):
        self._client, self._tell = made_by.client, made_by.tell
        self._prepared, self._sink, self._monitor, self._tasks = prepared, sink, monitor, tasks

    def run(self):
        """Return the `Run`, identical to that of a single piece.

        A part is a pure function: one that is lost with its worker is served again from its beginning. Where a part
        cannot go on (a livelock), the instant at which one piece would stop shows in all replicas: then the run is done
        here, in one piece.

        Raises
        ------
        parts.Stopped
            The monitor requested a stop; incomplete parts give no result.
        RuntimeError
            Workers die of a part again and again.
        """
        waiting, done, fruitless = list(self._tasks), [], 0
        while waiting and fruitless < MOST_FRUITLESS:
            before = len(done)
            waiting = self._serve_all(waiting, done)
            fruitless = 0 if len(done) > before else fruitless + 1
        if waiting:
            raise RuntimeError(f"{len(waiting)} parts of the run were lost {fruitless} times with the workers that "
                               "served them; too little memory, most likely: ask for more parts")
        if not all(part.run["complete"] for part in done):
            self._tell("a part of the run cannot go on: it is simulated again, in one piece")
            return assemble.build(self._prepared, self._sink, self._monitor).run()
        return parts.joined(done, self._prepared.workload, self._sink)

    def _serve_all(self, tasks: list[parts.Task], done: list[parts.Part]) -> list[parts.Task]:
        """Let workers serve parts, which are added to `done`; return parts that were lost with their workers."""
        from distributed import CancelledError, KilledWorker  # an extra; there is a client of it

        ours, lost = hash_of_sources(), []
        workload = self._client.scatter(self._prepared.workload, hash=False, broadcast=True)
        futures = {self._client.submit(_serve, task._replace(workload=None), workload, ours, pure=False): task
                   for task in tasks}
        try:
            for future in self._ended(futures, done):
                try:
                    done.append(future.result())
                except (CancelledError, KilledWorker):      # the former: with the last worker that had the requests
                    lost.append(futures[future])
        finally:
            self._client.cancel([*futures, workload])
        return lost

    def _ended(self, futures: Iterable, done: list[parts.Part]) -> Iterator:
        """Yield futures as they end; show the progress, and raise if the monitor requests a stop."""
        waiting = set(futures)
        while waiting:
            ended = {future for future in waiting if future.done()}     # `wait` would raise the exception of one future
            yield from ended
            waiting -= ended
            if not ended:
                time.sleep(LOOK_S)
            clock_ns = max((part.run["clock_ns"] for part in done), default=0)
            if self._monitor is not None and self._monitor(clock_ns, sum(map(parts.num_finished, done))):
                raise parts.Stopped


def _serve(task: parts.Task, workload, expected: str) -> parts.Part:
    """Serve a part, at a worker; other parts there share the requests, which are copied."""
    check_here(expected)
    return parts.serve(task._replace(workload=workload.untouched()))
