"""Runs trials in any process, caches the files that it has read, and returns each run's result as a line.

A point that does not fit is refused, an exception of a user's class makes it fail; neither ends the study.
"""
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from simulator import api, registry
from simulator.assembly.latency import Readings
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors
from simulator.study.statistics.of_run import Look
from simulator.study.sweep.study_file import RunRules, Study
from simulator.study.sweep.trial import DONE, FAILED, REFUSED, TIMEOUT, Finished, Trial
from simulator.study.telling.said import BACKENDS, DIAGNOSIS, backends_of


class Bench:
    """Runs the trials of a study one after the other; picklable.

    Parameters
    ----------
    keep : directory with one folder per run for its results; None: nothing is written.
    """

    def __init__(self, study: Study, keep: Path | None = None):
        self._study, self._keep = study, keep
        self._readings = Readings()

    def __getstate__(self):
        return self._study, self._keep          # the cache stays in its process

    def __setstate__(self, state):
        self.__init__(*state)

    @property
    def rules(self) -> RunRules:
        """Rules for runs: timeout, retries, baseline."""
        return self._study.settings.run

    def run(self, trial: Trial, stop=None) -> Finished:
        """Run a trial.

        Parameters
        ----------
        stop : called every few milliseconds; True: the run ends with the status of a timeout.
        """
        began, began_s = datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter()
        status, error, summary, extra = self._outcome(trial, _Clock(self._study.settings.run.timeout_s, stop))
        return Finished(trial.id, trial.index, trial.replication, trial.seed, status, error, 1, summary, extra,
                        round(time.perf_counter() - began_s, 6), platform.node(), began)

    def _outcome(self, trial: Trial, clock: "_Clock") -> tuple[str, str | None, dict, dict]:
        statistics = self._study.settings.statistics
        look = Look(self._study.warmup, statistics.metrics, statistics.confidence, statistics.min_tail)
        try:
            experiment = self._experiment(trial)
            out = None if self._keep is None else self._keep / trial.id
            result = api.run_ordered(api.Order(
                experiment, out, True, True, threads=1, readings=self._readings, settle=look, stop=clock.is_over))
        except InputErrors as errors:
            return REFUSED, "; ".join(_without_name(fault, self._study.name) for fault in errors.faults), {}, {}
        except MemoryError:
            return FAILED, "not enough memory", {}, {}
        except Exception as error:              # of a user's class, or of the program: one run of many
            if os.environ.get("SIM_TRACEBACK") == "1":
                raise
            reason = registry.blame(error) or f"a fault of the program: {type(error).__name__}: {error}"
            return FAILED, " ".join(reason.split()), {}, {}
        if clock.has_stopped:
            return TIMEOUT, f"it took longer than {self._study.settings.run.timeout_s:g} s", {}, {}
        numbers, notes = leaves(result.summary), list(result.summary["diagnosis"])
        if (risk := self._study.risk) is not None:
            numbers, notes = risk.applied(numbers), [*notes, risk.sentence]
            look.extra["interval"] = risk.applied(look.extra["interval"])
        return DONE, None, numbers, look.extra | {
            "gpus": num_gpus(experiment), "gpus_paid": gpus_paid(experiment, look.paid_share),
            DIAGNOSIS: notes, BACKENDS: backends_of([experiment])}

    def _experiment(self, trial: Trial) -> Experiment:
        more = {} if trial.num_requests is None else {"workload.num_requests": trial.num_requests}
        experiment = self._study.experiment_of(trial.assignment | more, trial.seed)
        if self._keep is not None:
            experiment = msgspec.structs.replace(experiment, output=self._study.base.output)
        return experiment


def work(bench: Bench, trial: Trial) -> Finished:
    """Run a trial, at a worker."""
    return bench.run(trial)


def leaves(summary: dict[str, Any], prefix: str = "") -> dict[str, float | None]:
    """Return the numbers of summary.json by dotted names; None: nothing to measure."""
    found = {}
    for key, value in summary.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{prefix}{key}.")
        elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            found[f"{prefix}{key}"] = value
    return found


def num_gpus(experiment: Experiment) -> int:
    """Return the number of accelerators of all replicas at time 0."""
    return sum(_replicas(pool) * pool.topology.data_parallel * _gpus_of_rank(pool)
               for pool in (*experiment.all_pools(), *experiment.encode_pools()))


def gpus_paid(experiment: Experiment, paid_share: np.ndarray) -> float:
    """Return the number of accelerators that are paid for, averaged over a run.

    Parameters
    ----------
    paid_share : float64 (replicas,), one entry per rank, pool by pool: the share of the time that it is paid for.
        Replicas that encode are paid for all the time.
    """
    total = float(sum(_replicas(pool) * pool.topology.data_parallel * _gpus_of_rank(pool)
                      for pool in experiment.encode_pools()))
    first = 0
    for pool in experiment.all_pools():
        places = max(_replicas(pool), pool.max_replicas or 0) * pool.topology.data_parallel
        total += float(paid_share[first:first + places].sum()) * _gpus_of_rank(pool)
        first += places
    return total


def _replicas(pool) -> int:
    return pool.topology.replicas if pool.replicas is None else pool.replicas


def _gpus_of_rank(pool) -> int:
    topology = pool.topology
    return topology.tensor_parallel * topology.pipeline_parallel * topology.prefill_context_parallel


class _Clock:
    """Decides when a run's time is over.

    has_stopped : the time was over before the run ended.
    """

    def __init__(self, timeout_s: float, stop):
        self.has_stopped = False
        self._until_s = time.monotonic() + timeout_s
        self._stop = stop

    def is_over(self) -> bool:
        """Return whether the run is to end."""
        self.has_stopped = self.has_stopped or time.monotonic() > self._until_s or (
            self._stop is not None and self._stop())
        return self.has_stopped


def _without_name(fault: str, name: str) -> str:
    return fault.removeprefix(f"{name}: ")
