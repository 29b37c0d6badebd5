"""One function over several names, in processes of their own; a signal ends them all.

A process works on one name after the other. It is spawned, not forked: threads of libraries do not survive a fork.
It takes 0.3 s to start.
"""
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from simulator.results.interrupts import Aborted

PATIENCE_S = 10.0               # for a process to end by itself, before it is terminated


def in_processes(work: Callable[[Any, str], Any], shared: Any, names: Iterable[str],
                 num_processes: int) -> Iterator[tuple[str, Any]]:
    """Yield each name and the result of `work(shared, name)`, as soon as it is done.

    Parameters
    ----------
    work : a function of a module, of ours or of an installed package.
    shared : sent to each process once.
    names : at least one; started in this order.

    Raises
    ------
    Exception
        The exception of `work`; all processes have ended then, as whenever the caller closes the generator.
    """
    names = list(names)
    workers = []
    try:
        for name in names[:num_processes]:
            workers.append(_start(work, shared))
            workers[-1].pipe.send(name)
        waiting = iter(names[num_processes:])
        running = dict(zip((worker.pipe for worker in workers), zip(names, workers)))
        while running:
            for pipe in wait(list(running)):
                name, worker = running.pop(pipe)
                result = _result(worker, name)
                following = next(waiting, None)
                pipe.send(following)                # None: no work is left
                if following is not None:
                    running[pipe] = following, worker
                yield name, result
        for worker in workers:
            worker.process.join(PATIENCE_S)
    finally:
        _end(workers)


class _Worker(NamedTuple):
    process: Any
    pipe: Connection


def _start(work: Callable[[Any, str], Any], shared: Any) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, shared), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _result(worker: _Worker, name: str) -> Any:
    try:
        result, error = worker.pipe.recv()
    except EOFError:
        worker.process.join(PATIENCE_S)
        status = worker.process.exitcode
        if status == -signal.SIGKILL:               # by the system, mostly for want of memory
            raise MemoryError(f"{name}: its process was killed") from None
        raise RuntimeError(f"{name}: its process ended with status {status}") from None
    if error is not None:
        raise error
    return result


def _end(workers: Iterable[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


# ---- in the other process

def _serve(pipe: Connection, work: Callable[[Any, str], Any], shared: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C reaches all processes; the first one ends the others
    signal.signal(signal.SIGTERM, _abort)
    try:
        while (name := pipe.recv()) is not None:
            pipe.send(_done(work, shared, name))
    except (Aborted, EOFError, BrokenPipeError):    # the parent has closed the pipe
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _done(work: Callable[[Any, str], Any], shared: Any, name: str) -> tuple[Any, BaseException | None]:
    try:
        return work(shared, name), None
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit) as error:        # SystemExit: by a user's class
        if os.environ.get("SIM_TRACEBACK") == "1":  # tracebacks cannot be pickled
            traceback.print_exception(error, file=sys.stderr)
        return None, _portable(error)


def _portable(error: BaseException) -> BaseException:
    """Return an error that can be pickled: itself where that is possible."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:                               # a user's class may raise anything when pickled
        return RuntimeError(f"{type(error).__name__}: {error}")


def _abort(number: int, frame) -> None:
    raise Aborted(number)
