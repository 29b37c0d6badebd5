"""Many experiments in processes of their own, each within a time limit; what ends or hangs a process is found, too."""
import csv
import json
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import tomli_w

from lattice.draw import Drawn
from lattice.examine import OF_ITSELF, Examined, Folder, examine, examine_seed

LIMIT_S = 60.0          # of one experiment, run three times on a busy machine; most take a few milliseconds


class Job(NamedTuple):
    """A seed, or an experiment that is there already."""

    seed: int | None
    drawn: Drawn | None = None


class Worker:
    """A process that examines one experiment after the other.

    Parameters
    ----------
    folder : where it keeps files.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.job: Job | None = None
        self.began_s = 0.0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.answers, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self.folder), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, job: Job) -> None:
        """Hand it a job."""
        self.job, self.began_s = job, time.monotonic()
        self.answers.send(job)

    def take(self) -> Examined:
        """Return its answer, or what is known where it has died."""
        self.job = None
        try:
            return self.answers.recv()
        except EOFError:
            self._process.join()
            return self._again("died", f"the process ended with {self._process.exitcode}")

    def is_late(self, limit_s: float) -> bool:
        """Say whether its job takes too long."""
        return self.job is not None and time.monotonic() - self.began_s > limit_s

    def give_up(self) -> Examined:
        """End it in the middle of its job."""
        took_s = time.monotonic() - self.began_s
        self.job = None
        self._process.kill()
        self._process.join()
        return self._again("hang", f"no end after {took_s:.0f} s")

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()

    def _again(self, kind: str, text: str) -> Examined:
        self.answers.close()
        self._start()
        left = json.loads((self.folder / OF_ITSELF).read_text(encoding="utf-8"))
        return Examined(Drawn(**left), None, [(kind, text)])


def _work(jobs, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # the parent is told, and ends this
    own = Folder(folder)
    while True:
        job = jobs.recv()
        jobs.send(examine_seed(job.seed, own) if job.drawn is None else examine(job.drawn, own))


class Hunt:
    """Processes that examine experiments, as a context.

    Parameters
    ----------
    folder : where they keep files.
    num_workers : how many there are.
    limit_s : of one experiment.
    """

    def __init__(self, folder: Path, num_workers: int, limit_s: float = LIMIT_S):
        self._workers = [Worker(folder / f"worker{number}") for number in range(num_workers)]
        self._limit_s = limit_s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self._workers:
            worker.end()

    def outcomes(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Examined]]:
        """Yield what became of each job, as they end."""
        left, busy = iter(jobs), 0
        for worker in self._workers:
            busy += self._next(worker, left)
        while busy:
            for worker in list(self._ended()):
                job = worker.job
                examined = worker.take() if worker.answers.poll() else worker.give_up()
                busy -= 1
                busy += self._next(worker, left)
                yield job, examined

    def examine(self, drawn: Drawn) -> Examined:
        """Return what becomes of one experiment."""
        (_, examined), = self.outcomes([Job(None, drawn)])
        return examined

    def _next(self, worker: Worker, jobs: Iterator[Job]) -> int:
        job = next(jobs, None)
        if job is None:
            return 0
        worker.give(job)
        return 1

    def _ended(self) -> list[Worker]:
        """Wait until one has answered, or is late."""
        while True:
            busy = [worker for worker in self._workers if worker.job is not None]
            ready = wait([worker.answers for worker in busy], timeout=0.2)
            ended = [worker for worker in busy if worker.answers in ready or worker.is_late(self._limit_s)]
            if ended:
                return ended


def write_case(drawn: Drawn, folder: Path, name: str) -> Path:
    """Write an experiment, and its trace where it has one; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads(json.dumps(drawn.data))
    if data.get("workload", {}).get("path") == "requests.csv":
        data["workload"]["path"] = f"{name}.csv"
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(drawn.trace)
    path = folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(data), encoding="utf-8")
    return path
