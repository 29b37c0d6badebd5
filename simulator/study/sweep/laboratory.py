"""Runs trials in this process, in processes of their own, or elsewhere; each is stored, none is run twice."""
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from simulator.study.sweep.bench import Bench, work
from simulator.study.sweep.identity import Ids
from simulator.study.sweep.pool import Rules, Served, serve
from simulator.study.sweep.segments import Segment
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import KILLED, TIMEOUT, Finished, Trial
from simulator.study.telling.said import Said

KILL_AFTER = 2.0                # times the timeout of a run, after which a process that did not stop is killed


class Laboratory:
    """Run trials; keep each in the store, where there is one; never run one twice.

    said : the remarks of the requested runs, including runs known before.

    Parameters
    ----------
    study : the study of the trials.
    directory : of the study, with its segments; None: nothing is written.
    num_processes : that run side by side; 1: this process only. A public attribute.
    known : runs that ended before, by id.
    stop : polled all the time; True: no further trial is started.
    writer : first part of the name of the segment; None: host and process.
    elsewhere : another way to run trials: called with (bench, trials), yields ended ones; None: processes here.
    keep : whether the results of each run are kept in DIR/runs.
    """

    def __init__(self, study: Study, directory: Path | None = None, num_processes: int = 1,
                 known: dict[str, Finished] | None = None, **options: Any):
        self._study, self._directory, self.num_processes = study, directory, num_processes
        self.known = {} if known is None else known
        self.said = Said()
        self._stop: Callable[[], bool] = options.get("stop") or (lambda: False)
        self._writer, self._elsewhere = options.get("writer"), options.get("elsewhere")
        keep = directory / "runs" if options.get("keep") and directory is not None else None
        self._bench = Bench(study, keep)
        self._count = 0
        self._last: tuple[dict[str, Any], Ids] | None = None

    def trial(self, assignment: dict[str, Any], seed: int, replication: int = 0,
              num_requests: int | None = None) -> Trial:
        """Return a trial that is in no plan.

        Raises
        ------
        InputErrors
            The assignment gives no valid experiment.
        """
        key = assignment if num_requests is None else assignment | {"workload.num_requests": num_requests}
        if self._last is None or self._last[0] != key:          # the seeds of one point are consecutive
            self._last = (key, Ids(self._study.experiment_of(key), self._study.more_inputs))
        self._count += 1
        return Trial(self._count - 1, self._last[1].of(seed), 0, replication, seed, assignment, num_requests)

    def run(self, trials: Iterable[Trial]) -> Iterator[Finished]:
        """Yield the results of trials, as they end; known results at once.

        Trials with one id are one run.

        Raises
        ------
        OutputError
            A write failed, for instance because the disk is full; earlier lines stay.
        """
        for finished in self._finished(trials):
            self.said.add_ends([finished])
            yield finished

    def _finished(self, trials: Iterable[Trial]) -> Iterator[Finished]:
        waiting = {}
        for trial in trials:
            if trial.id in self.known:
                yield self.known[trial.id]
            else:
                waiting.setdefault(trial.id, trial)
        if not waiting:
            return
        ended = self._ended(list(waiting.values()))
        if self._directory is None:
            for finished in ended:
                self.known[finished.id] = finished
                yield finished
            return
        with Segment(self._directory, self._writer) as segment:
            for finished in ended:
                segment.append(finished)
                self.known[finished.id] = finished
                yield finished

    def _ended(self, trials: list[Trial]) -> Iterator[Finished]:
        if self._elsewhere is not None:
            yield from self._elsewhere(self._bench, trials)
        elif self.num_processes == 1:
            yield from self._one_by_one(trials)
        else:
            rules = Rules(min(self.num_processes, len(trials)), self._study.settings.run.retries,
                          KILL_AFTER * self._study.settings.run.timeout_s, self._stop, is_accepted=was_in_time)
            for served in serve(work, self._bench, trials, rules):
                yield end_of(served, self._study.settings.run.timeout_s)

    def _one_by_one(self, trials: list[Trial]) -> Iterator[Finished]:
        for trial in trials:
            attempts, finished = 0, None
            while finished is None or not (was_in_time(finished) or attempts > self._study.settings.run.retries):
                if self._stop():
                    return
                finished, attempts = self._bench.run(trial), attempts + 1
            yield finished._replace(attempts=attempts)


def was_in_time(finished: Finished) -> bool:
    """Return whether a run ended without a timeout."""
    return finished.status != TIMEOUT


def end_of(served: Served, timeout_s: float) -> Finished:
    """Return the result of a trial that a process of its own ran, or died of."""
    if served.lost is None:
        return served.result._replace(attempts=served.attempts)
    trial = served.item
    if served.lost == -signal.SIGALRM:
        status, error = TIMEOUT, f"it took longer than {timeout_s:g} s, and did not heed it"
    else:
        status, error = KILLED, served.why_lost()
    return Finished(trial.id, trial.index, trial.replication, trial.seed, status, error, served.attempts, {}, {}, 0.0)
