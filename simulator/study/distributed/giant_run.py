"""One run of replicas that do not interact, in pieces that workers of Dask simulate."""
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from simulator.assembly import assemble, split_run
from simulator.study.distributed.dask_client import check_here
from simulator.study.sweep.sources import hash_of_sources

LOOK_S = 0.02                   # between two checks for pieces that have ended, and for a stop
MOST_FRUITLESS = 3              # rounds in which all remaining pieces are lost


class InParts(NamedTuple):
    """Makes a run of pieces, in place of `assemble.build`.

    client : distributed.Client. count : pieces, at the most; 0: two for each worker's thread.
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
            The cluster cannot be split.
        """
        count = self.count or 2 * sum(self.client.nthreads().values())
        return Pieces(self, prepared, sink, monitor, split_run.tasks_of(prepared, sink, count))


class Pieces:
    """A run in pieces; parameters as in `assemble.build`."""

    def __init__(self, made_by: InParts, prepared: assemble.Prepared, sink, monitor, tasks: list[split_run.Task]):
        self._client, self._tell = made_by.client, made_by.tell
        self._prepared, self._sink, self._monitor, self._tasks = prepared, sink, monitor, tasks

    def run(self):
        """Return the `Run`, identical to that of a run that is not split.

        A piece is a pure function: one that is lost with its worker is served again from its beginning. Where a piece
        cannot go on (a livelock), the instant at which the run stops shows in all replicas: then the run is done
        here, as a whole.

        Raises
        ------
        split_run.Stopped
            The monitor requested a stop; incomplete pieces give no result.
        RuntimeError
            Workers die of a piece again and again.
        """
        waiting, done, fruitless = list(self._tasks), [], 0
        while waiting and fruitless < MOST_FRUITLESS:
            before = len(done)
            waiting = self._serve_all(waiting, done)
            fruitless = 0 if len(done) > before else fruitless + 1
        if waiting:
            raise RuntimeError(f"{len(waiting)} pieces of the run were lost {fruitless} times with the workers that "
                               "served them; too little memory, most likely: ask for more pieces")
        if not all(piece.run["complete"] for piece in done):
            self._tell("a piece of the run cannot go on: it is simulated again, as a whole")
            return assemble.build(self._prepared, self._sink, self._monitor).run()
        return split_run.joined(done, self._prepared, self._sink)

    def _serve_all(self, tasks: list[split_run.Task], done: list[split_run.Piece]) -> list[split_run.Task]:
        """Let workers serve pieces, which are added to `done`; return pieces that were lost with their workers."""
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

    def _ended(self, futures: Iterable, done: list[split_run.Piece]) -> Iterator:
        """Yield futures as they end; show the progress, and raise if the monitor requests a stop."""
        waiting = set(futures)
        while waiting:
            ended = {future for future in waiting if future.done()}     # `wait` would raise the exception of one future
            yield from ended
            waiting -= ended
            if not ended:
                time.sleep(LOOK_S)
            clock_ns = max((piece.run["clock_ns"] for piece in done), default=0)
            if self._monitor is not None and self._monitor(clock_ns, sum(map(split_run.num_finished, done))):
                raise split_run.Stopped


def _serve(task: split_run.Task, workload, expected: str) -> split_run.Piece:
    """Serve a piece, at a worker; other pieces there share the requests, which are copied."""
    check_here(expected)
    return split_run.serve(task._replace(workload=workload.untouched()))
