"""Run experiments from Python."""
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator import __version__
from simulator.assembly import assemble
from simulator.assembly.front_ends import front_end_notes
from simulator.assembly.split_run import Stopped
from simulator.config.experiment import Experiment
from simulator.config.load import commented_toml, load_experiment, resolved_toml
from simulator.core.cores import available_cores
from simulator.domain import records
from simulator.domain.run import Run
from simulator.errors import InputErrors, KeyFault, faults_of
from simulator.latency.readings import Readings
from simulator.results.directory import check_free, staged
from simulator.results.interrupts import Aborted, Interrupts
from simulator.results.iteration_log import IterationLog
from simulator.results.measured import log_for, measured_rows, narrowed, window_of
from simulator.results.metrics import SCHEMA
from simulator.results.progress import Progress, ProgressFile
from simulator.results.provenance import Timings, provenance
from simulator.results.result import Result
from simulator.results.summary import json_text, summary_of
from simulator.workload.base import Workload


class Order(NamedTuple):
    """An experiment and the settings of its run; parameters as in `run`.

    readings : files that latency backends have read in earlier runs, extended by this run; None: none.
    stop : called every few milliseconds of simulation; True ends the run, with incomplete results.
    settle : called with the finished Run, returns the mask of measured requests, bool (n,); None: as in [workload].
        With an attribute `may_cut` of False it returns None for every run.
    build : replaces `assemble.build`, e.g. for a run in parts; None: `assemble.build`.
    fresh : copy of `workload` in its initial state, if it is to be served again.
    """

    experiment: Experiment
    out: str | os.PathLike | None
    overwrite: bool
    quiet: bool
    workload: Workload | None = None
    threads: int | None = None
    readings: Readings | None = None
    build: Callable[..., Any] | None = None
    settle: Callable[[Run], Any] | None = None
    stop: Callable[[], bool] | None = None
    fresh: Workload | None = None


def run(experiment: str | os.PathLike | Experiment, overrides: Mapping[str, Any] | Iterable[str] | str | None = None, *,
        out: str | os.PathLike | None = None, overwrite: bool = False, quiet: bool = True,
        workload: Workload | None = None, threads: int | None = None, client: Any = None) -> Result:
    """Run an experiment.

    Parameters
    ----------
    experiment : a TOML file, or the Experiment that `simulator.config.load.load_experiment` returned.
    overrides : values that win over the file, for instance `{"engine.max_num_seqs": 64}`, or texts as --set takes them.
    out : directory for the results; None: nothing is written.
    overwrite : replace complete results in `out`.
    quiet : show no progress bar.
    workload : requests to serve in place of [workload]; their times and states are written into it.
    threads : maximum threads to simulate independent replicas; None: the number of cores available to this process.
        The results do not depend on it, to the byte.
    client : a distributed.Client: its workers simulate parts of the run, independent replicas; or
        `study.distributed.giant_run.InParts(client, count)`. The results do not depend on it, to the byte.

    Raises
    ------
    InputErrors
        Every fault of the experiment, one line each; `.faults` lists them.
    OutputError
        The results cannot be written: a full disk, for instance.
    KeyboardInterrupt
        On Ctrl-C; nothing is written then.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, found {threads}")
    timings = Timings()
    file = getattr(experiment, "name", experiment)
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides)
    elif overrides:
        raise ValueError("overrides apply to a file; this experiment is already resolved")
    with faults_of(file):
        order = Order(experiment, out, overwrite, quiet, workload, threads)
        return _run(order if client is None else _in_parts(order, client), Interrupts(()), timings)


def run_ordered(order: Order) -> Result:
    """Run an experiment as `run` does."""
    with faults_of(order.experiment.name):
        return _run(order, Interrupts(()), Timings())


def run_experiment(experiment: Experiment, out: str | os.PathLike | None = None, overwrite: bool = False,
                   quiet: bool = False, main_began_s: float | None = None, threads: int | None = None,
                   build: Callable[..., Any] | None = None) -> Result:
    """Run an experiment for a program: write results, also when interrupted.

    The first SIGINT or SIGTERM stops the simulation; the results so far are written and marked incomplete.

    Parameters
    ----------
    out : directory for the results; None: the experiment's output.directory, else results/<name>.
    overwrite, quiet, threads : as in `run`.
    build : as in Order.
    main_began_s : `time.perf_counter()` when the program began, for provenance.json; None: now.

    Returns
    -------
    Result
        Its `interrupted_by` is the signal that ended the simulation early, or None.

    Raises
    ------
    InputErrors
        The workload cannot be read, the deployment does not fit, or the directory is taken.
    Aborted
        A second signal arrived; nothing was written.
    """
    out = out or experiment.output.directory or Path("results", experiment.name)
    order = Order(experiment, out, overwrite, quiet, threads=threads, build=build)
    return _run(order, Interrupts(), Timings(main_began_s))


def _in_parts(order: Order, client: Any) -> Order:
    from simulator.study.distributed.giant_run import InParts  # needs an optional extra

    return order._replace(build=client if isinstance(client, InParts) else InParts(client))


def _run(order: Order, interrupts: Interrupts, timings: Timings) -> Result:
    if order.experiment.output.streamed and not (order.settle is None and order.build is None):
        raise InputErrors([KeyFault("output.streamed: expected false: studies, and runs in parts, read the requests")])
    if order.out is not None:       # checked before any work; absolute, since the current folder may change
        order = order._replace(out=check_free(order.out, order.overwrite))
    if order.workload is not None and is_uncertain(order.experiment):
        order = order._replace(fresh=order.workload.untouched())
    with interrupts:
        prepared = assemble.prepare(order.experiment, order.workload, order.readings)
        prepared = assemble.with_all_requests(
            prepared, lambda *_: interrupts.signal_number is not None, order.readings)
        if prepared.workload.is_open_ended:     # interrupted while its requests were counted
            raise Aborted(interrupts.signal_number)
        with Progress(len(prepared.workload), order.quiet) as progress:
            watch = _Watch(progress, interrupts, order.stop)
            if order.out is None:
                result = _run_in_memory(order, prepared, watch)
            else:
                result = _run_into_files(order, prepared, watch, timings)
    result.interrupted_by = watch.stopped_by if not result.summary["complete"] else None
    result.stands_still = watch.stands_still
    return result


class _Watch:
    """Monitor of a running simulation, which shows progress and may stop it.

    stopped_by : the signal that stopped the simulation; None: none did. A later signal has no effect.
    stands_still : the run was ended because nothing could happen in it any more, see Run.
    file : shows the progress to `watch`, too; None: results stay in memory.
    """

    file: ProgressFile | None = None

    def __init__(self, progress: Progress, interrupts: Interrupts, stop: Callable[[], bool] | None = None):
        self.stopped_by: int | None = None
        self.stands_still = False
        self._progress = progress
        self._interrupts = interrupts
        self._stop = stop

    def monitor(self, clock_ns: int, finished_requests: int) -> bool:
        """Show the progress of the simulation; return whether to stop it."""
        self._progress.show(clock_ns, finished_requests)
        if self.file is not None:
            self.file.show(clock_ns, finished_requests)
        self.stopped_by = self._interrupts.signal_number
        return self.stopped_by is not None or (self._stop is not None and self._stop())

    def run(self, cluster: Any) -> Run:
        """Run the cluster and return its Run.

        Raises
        ------
        Aborted
            The run was stopped, and its parts give no results.
        """
        try:
            return cluster.run()
        except Stopped:
            raise Aborted(self.stopped_by) from None

    def is_stopped(self, clock_ns: int, finished_requests: int) -> bool:
        """Return whether to stop the work after the simulation."""
        return self._interrupts.signal_number is not None or (self._stop is not None and self._stop())

    def end(self, finished: Run) -> None:
        """Show the final progress."""
        self.stands_still = finished.stands_still
        workload = finished.workload
        has_ended = workload.requests["status"] > records.RUNNING
        before = 0 if workload.chunks is None else workload.chunks.num_given_up - len(workload)
        self._progress.end(finished.clock_ns, before + int(has_ended.sum()))


def _run_in_memory(order: Order, prepared: assemble.Prepared, watch: _Watch) -> Result:
    from simulator.results.memory import MemoryRecorder  # not needed when files are written

    experiment = prepared.experiment
    listeners, log = _listeners(order, prepared)
    recorder = MemoryRecorder(experiment.output, prepared.workload, listeners, prepared.streams)
    build = order.build or assemble.build
    finished = watch.run(build(prepared, recorder, watch.monitor, order.threads or available_cores()))
    _measure(finished, order, log)
    watch.end(finished)
    made = recorder.finish(finished)
    return Result(_summary(order, finished, watch), made)


def _run_into_files(order: Order, prepared: assemble.Prepared, watch: _Watch, timings: Timings) -> Result:
    from simulator.results.files import FileRecorder  # imports h5py, 60 ms that a run in memory saves
    from simulator.results.reader import Reader

    experiment, resolved = order.experiment, resolved_toml(order.experiment)
    attributes = {"schema": SCHEMA, "name": experiment.name, "seed": experiment.seed, "version": __version__,
                  "resolved_toml": resolved}
    listeners, log = _listeners(order, prepared)
    recorder = FileRecorder(experiment.output, prepared.workload, attributes, listeners, prepared.streams)
    build = order.build or assemble.build
    cluster = build(prepared, recorder, watch.monitor, order.threads or available_cores())
    timings.end("load")
    with (staged(order.out, order.overwrite) as directory,
          ProgressFile(directory, len(prepared.workload)) as watch.file):
        with recorder.into(directory):
            timings.end("write")
            finished = watch.run(cluster)
            _measure(finished, order, log)
            timings.end("simulate")
            watch.end(finished)
            del cluster         # the engine's own data is a tenth of all memory
            timings.move(recorder.spent_s, "simulate", "write")
            recorder.finish(finished)
        summary = _summary(order, finished, watch)
        if is_uncertain(experiment):
            timings.end("simulate")
        _write(directory / "summary.json", json_text(summary))
        _write(directory / "resolved.toml", commented_toml(experiment))
        if experiment.output.vidur_csv:
            _add_vidur_csv(directory, summary)
        timings.end("write")
        _write(directory / "provenance.json", json_text(provenance(__version__, timings.as_dict())))
    return Result(summary, Reader(order.out / "results.h5"), order.out)


def _listeners(order: Order, prepared: assemble.Prepared) -> tuple[tuple, IterationLog | None]:
    """Return the receivers of iterations; the last is a log if only a piece of the run may be measured, else None."""
    may_cut = order.settle is not None and getattr(order.settle, "may_cut", True)
    log = log_for(prepared.workload, order.experiment.workload.measure, may_cut)
    found = [*(part.listener(log is not None) for part in prepared.parts), log]
    return tuple(each for each in found if each is not None), log


def _measure(finished: Run, order: Order, log: IterationLog | None) -> None:
    """Set the measured requests and the window of measurement."""
    measure = order.experiment.workload.measure
    finished.workload.measured, finished.iteration_log = measured_rows(finished, measure), log
    finished.window = window_of(finished, measure)
    if order.settle is not None and (counts := order.settle(finished)) is not None:
        finished.window = narrowed(finished, counts)
        finished.workload.measured = counts


def _add_vidur_csv(directory: Path, summary: dict) -> None:
    """Write Vidur's tables into the results; their missing columns are listed in the diagnosis."""
    from simulator.results.export.source import Source  # few runs ask for it
    from simulator.results.export.vidur import write_vidur_csv

    if notes := write_vidur_csv(Source(directory), directory, lambda num_rows: None):
        summary["diagnosis"] = [*summary["diagnosis"], *notes]
        _write(directory / "summary.json", json_text(summary))


def _summary(order: Order, finished: Run, watch: _Watch) -> dict:
    experiment = order.experiment

    def summarise(run: Run) -> dict:
        summary = summary_of(run, experiment.name, experiment.seed, experiment.slo, assemble.pools_of(experiment),
                             experiment.fitness)
        return summary | {"diagnosis": [*summary["diagnosis"], *front_end_notes(experiment, summary)]}

    def summarise_again(run: Run) -> dict:
        _measure(run, order._replace(settle=None), run.iteration_log)
        if order.settle is not None and finished.workload.measured is not None:
            # settle() chose the requests of one run: its replications measure equal requests
            run.window = narrowed(run, finished.workload.measured)
            run.workload.measured = finished.workload.measured
        return summarise(run)

    summary = summarise(finished)
    if not is_uncertain(experiment):
        return summary
    from simulator.assembly.replications import uncertainty  # few runs ask for it

    return summary | uncertainty(experiment, summary, summarise_again, order.fresh,
                                 order.threads or available_cores(), watch.is_stopped)


def is_uncertain(experiment: Experiment) -> bool:
    """Return whether an experiment requests intervals, in all its pools then."""
    return any(pool.latency.uncertainty for pool in experiment.all_pools())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
