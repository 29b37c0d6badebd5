"""Work items in processes of their own, of which any may die without affecting the others.

A worker is forked from a server that has imported the work already, and answers over a pipe of its own, one answer for
each item: a dead process and the item that it died of are always known, and finished results are kept. (With the
standard library's ProcessPoolExecutor one death breaks all running items, and the item that caused it is unknown.)
"""
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from simulator.errors import InputErrors, OutputError

LOOK_S = 0.1                    # between two checks for a stop
CHUNK_S = 1.0                   # of work, sent to a worker at once
MOST_AT_ONCE = 256
MOST_FAILED_STARTS = 20
HEARD_BY_ALL = (signal.SIGINT, signal.SIGTERM)
UNKNOWN = 256                   # no exit status known: the process died on another machine
PATIENCE_S = 10.0               # for a process to end by itself, before it is terminated
# Libraries that would start one thread per core in each process.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
              "NUMEXPR_NUM_THREADS")


class Rules(NamedTuple):
    """Rules for serving items.

    num_processes : that serve side by side.
    retries : further attempts for an item after a process died of it, or its result was not accepted, alone in a new
        process.
    is_accepted : whether a result counts; the result of the last attempt always counts.
    kill_after_s : wall time after which the system kills the process of an item; inf: never.
    stop : polled every `LOOK_S`; True: no further item is started.
    grace_s : time for running items, before their processes are killed.
    """

    num_processes: int
    retries: int = 0
    kill_after_s: float = math.inf
    stop: Callable[[], bool] = lambda: False
    grace_s: float = 20.0
    is_accepted: Callable[[Any], bool] = lambda result: True


class Served(NamedTuple):
    """The result of an item.

    result : return value of the work; None where its processes died.
    lost : how the last process ended: the signal, negative, the exit status, or `UNKNOWN`; None: normally.
    attempts : number of processes that tried it.
    """

    item: Any
    result: Any
    lost: int | None
    attempts: int

    def why_lost(self) -> str:
        """Return how the last process ended.

        Empty: it was not lost.
        """
        if self.lost is None:
            return ""
        if self.lost == UNKNOWN:
            return "the workers that served it died, for want of memory most likely"
        if self.lost >= 0:
            return f"its process ended with status {self.lost}"
        try:
            name = signal.Signals(-self.lost).name
        except ValueError:              # a real-time signal
            name = f"signal {-self.lost}"
        likely = ", for want of memory most likely" if self.lost == -signal.SIGKILL else ""
        return f"its process was killed ({name}){likely}"


def serve(work: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any], rules: Rules) -> Iterator[Served]:
    """Yield what `work(shared, item)` returns for each item, as soon as it is done.

    Parameters
    ----------
    work : a function of a module; raises only for faults of its own.
    shared : sent to each process once; the process may cache files in it.
    items : started in this order; consumed as needed.

    Raises
    ------
    RuntimeError
        The work raised, or no process can start; all processes have ended then, as whenever the caller closes
        the generator.
    """
    pool = _Pool(work, shared, items, rules)
    try:
        yield from pool.serve()
    finally:
        pool.end()


class _Task(NamedTuple):
    item: Any
    attempts: int = 0


class _Worker:
    """A process, its pipe, and its unanswered items.

    is_ready : it has started. is_dismissed : it was asked to end; its unanswered items are not done.
    """

    def __init__(self, process: Any, pipe: Connection):
        self.process, self.pipe = process, pipe
        self.tasks: deque[_Task] = deque()
        self.is_ready = self.is_dismissed = False


class _Pool:
    """The parent process's side."""

    def __init__(self, work: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any], rules: Rules):
        self._work, self._shared, self._items, self._rules = work, shared, iter(items), rules
        self._back: deque[_Task] = deque()          # sent to a process that died before starting them
        self._alone: deque[_Task] = deque()         # that a process died of
        self._next: _Task | None = None
        self._workers: dict[Connection, _Worker] = {}
        self._pace = Pace()
        self._has_begun = False
        self._failed_starts = 0                     # consecutive

    def serve(self) -> Iterator[Served]:
        """Yield the results of the items, until none is left or a stop is requested."""
        stopped_s = None
        while True:
            if stopped_s is None and self._rules.stop():
                stopped_s = time.monotonic()
                self._dismiss()
            if stopped_s is None:
                self._hand_out()
            busy = [worker.pipe for worker in self._workers.values() if worker.tasks]
            if not busy or (stopped_s is not None and time.monotonic() - stopped_s > self._rules.grace_s):
                return
            for pipe in wait(busy, LOOK_S):
                yield from self._hear(self._workers[pipe])

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.pipe.close()
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join(PATIENCE_S)
        self._workers.clear()

    def _hand_out(self) -> None:
        while True:
            idle = next((worker for worker in self._workers.values() if not worker.tasks), None)
            if idle is None and len(self._workers) >= self._rules.num_processes:
                return
            tasks = self._chunk()
            if not tasks:
                return
            worker = idle if idle is not None and not tasks[0].attempts else self._start(idle)
            worker.tasks.extend(tasks)
            try:
                worker.pipe.send([task.item for task in tasks])
            except (BrokenPipeError, ConnectionResetError):     # it is dead, and `_hear` handles it next
                continue

    def _chunk(self) -> list[_Task]:
        """Return the next items: about a second of work, or one item that must run alone."""
        if self._alone:
            return [self._alone.popleft()]
        tasks: list[_Task] = []
        size = self._pace.items_at_once()
        while len(tasks) < size:
            if self._back:
                tasks.append(self._back.popleft())
                continue
            item = next(self._items, self)
            if item is self:
                break
            tasks.append(_Task(item))
        return tasks

    def _start(self, idle: _Worker | None = None) -> _Worker:
        """Return a new process, in place of an idle one if there is one."""
        if idle is not None:
            self._dismiss_one(idle)
        for _ in range(MOST_FAILED_STARTS):
            try:
                return self._begin()
            except (EOFError, ConnectionError, FileNotFoundError):      # the fork server was killed; another starts
                time.sleep(LOOK_S)
        return self._begin()

    def _begin(self) -> _Worker:
        context = get_context("forkserver")
        ours, theirs = context.Pipe()
        context.set_forkserver_preload([self._work.__module__])
        process = context.Process(target=_answer, daemon=True, args=(
            theirs, self._work, self._shared, self._rules.kill_after_s))
        try:
            with one_thread_each(), deaf():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = self._workers[ours] = _Worker(process, ours)
        return worker

    def _hear(self, worker: _Worker) -> Iterator[Served]:
        """Yield the answers of a process; if it has died, put its items back into the queues."""
        try:
            kind, answer, wall_s = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            yield from self._bury(worker)
            return
        if kind == "ready":
            worker.is_ready = self._has_begun = True
            self._failed_starts = 0
        elif kind == "raised":
            raise answer if isinstance(answer, Exception) else RuntimeError(f"a worker process: {answer}")
        else:
            task = worker.tasks.popleft()
            self._pace.note(wall_s)
            if task.attempts < self._rules.retries and not self._rules.is_accepted(answer):
                self._alone.append(task._replace(attempts=task.attempts + 1))
            else:
                yield Served(task.item, answer, None, task.attempts + 1)

    def _bury(self, worker: _Worker) -> Iterator[Served]:
        """Retry, alone, the item that a process died of, or give it up; its other items wait for another process."""
        del self._workers[worker.pipe]
        worker.pipe.close()
        worker.process.join(PATIENCE_S)
        status = worker.process.exitcode
        if worker.is_dismissed:
            return
        if not worker.is_ready:         # killed during startup, or no process can start
            self._failed_starts += 1
            was_killed = status is not None and status < 0
            if self._failed_starts > MOST_FAILED_STARTS or not (was_killed or self._has_begun):
                raise RuntimeError(f"no worker process can begin (exit status {status}); a script that calls this "
                                   "needs `if __name__ == \"__main__\":` around it; with one job it goes without "
                                   "processes")
            self._alone.extend(task for task in worker.tasks if task.attempts)
            self._back.extendleft(reversed([task for task in worker.tasks if not task.attempts]))
            return
        dead = worker.tasks.popleft()
        self._back.extendleft(reversed(worker.tasks))
        if dead.attempts < self._rules.retries:
            self._alone.append(dead._replace(attempts=dead.attempts + 1))
        else:
            yield Served(dead.item, None, UNKNOWN if status is None else status, dead.attempts + 1)

    def _dismiss(self) -> None:
        """Let each process end after its current item; its other items are not started."""
        for worker in list(self._workers.values()):
            if worker.tasks:
                self._tell_to_end(worker)
            else:
                self._dismiss_one(worker)

    def _dismiss_one(self, worker: _Worker) -> None:
        self._tell_to_end(worker)
        del self._workers[worker.pipe]
        worker.pipe.close()
        worker.process.join(PATIENCE_S)
        if worker.process.is_alive():
            worker.process.kill()

    @staticmethod
    def _tell_to_end(worker: _Worker) -> None:
        worker.is_dismissed = True
        try:
            worker.pipe.send(None)
        except (BrokenPipeError, ConnectionResetError):
            return


class Pace:
    """Number of items in a second of work: by a mean that weighs recent items most."""

    def __init__(self):
        self._item_s: float | None = None

    def note(self, wall_s: float) -> None:
        """Record the wall time of an item."""
        self._item_s = wall_s if self._item_s is None else 0.8 * self._item_s + 0.2 * wall_s

    def items_at_once(self) -> int:
        """Return how many items a process is sent at once."""
        if self._item_s is None:
            return 1
        return max(1, min(MOST_AT_ONCE, int(CHUNK_S / max(self._item_s, 1e-6))))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let processes that are started in the block compute with one thread.

    Variables that the user has set are kept.
    """
    added = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def deaf() -> Iterator[None]:
    """Let processes started in the block, and their children, ignore signals.

    SIGINT and SIGTERM: batch systems and terminals send them to all processes, the fork server among them; the parent
    decides.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD_BY_ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---- in the other process

def _answer(pipe: Connection, work: Callable[[Any, Any], Any], shared: Any, kill_after_s: float) -> None:
    """Serve items until asked to end."""
    for number in HEARD_BY_ALL:         # where another program's fork server is used, which handles them
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(("ready", None, 0.0))
        while (items := pipe.recv()) is not None:
            for item in items:
                if pipe.poll():                         # a request to end: nothing else is sent before the last answer
                    return
                pipe.send(_done(work, shared, item, kill_after_s))
    except (EOFError, BrokenPipeError, ConnectionResetError):       # the parent has closed the pipe
        return


def _done(work: Callable[[Any, Any], Any], shared: Any, item: Any, kill_after_s: float) -> tuple[str, Any, float]:
    began_s = time.perf_counter()
    if kill_after_s < math.inf:         # by the kernel: no loop, of Python or C, can miss it
        signal.setitimer(signal.ITIMER_REAL, kill_after_s)
    try:
        return "done", work(shared, item), time.perf_counter() - began_s
    except (InputErrors, OutputError) as error:         # not a fault of the program: they name the cause
        return "raised", error, time.perf_counter() - began_s
    except (Exception, SystemExit) as error:
        if os.environ.get("SIM_TRACEBACK") == "1":      # tracebacks cannot be pickled
            traceback.print_exception(error, file=sys.stderr)
        return "raised", f"{type(error).__name__}: {error}", time.perf_counter() - began_s
    finally:
        if kill_after_s < math.inf:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def _end_with_parent() -> None:
    """End this process when its parent is gone, even if the parent was killed without notice."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)
