"""Run experiments from Python."""
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator import __version__, assemble
from simulator.config.experiment import Experiment
from simulator.config.load import load_experiment, resolved_toml
from simulator.errors import faults_of
from simulator.results.directory import check_free, staged
from simulator.results.interrupts import Interrupts
from simulator.results.metrics import SCHEMA
from simulator.results.progress import Progress
from simulator.results.provenance import Timings, provenance
from simulator.results.result import Result
from simulator.results.summary import json_text, summary_of


def run(experiment: str | os.PathLike | Experiment, overrides: Mapping[str, Any] | Iterable[str] = (), *,
        out: str | os.PathLike | None = None, overwrite: bool = False, quiet: bool = True) -> Result:
    """Run an experiment.

    Parameters
    ----------
    experiment : a TOML file, or what `simulator.config.load.load_experiment` made of one.
    overrides : values that win over the file, for instance `{"engine.max_num_seqs": 64}`.
    out : directory for the results; None: nothing is written.
    overwrite : replace complete results in `out`.
    quiet : show no progress bar.

    Raises
    ------
    InputErrors
        Everything that is wrong with the experiment, one line each; `.faults` lists them.
    KeyboardInterrupt
        On Ctrl-C, as usual; nothing is written then.
    """
    timings = Timings()
    file = getattr(experiment, "name", experiment)
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides)
    elif overrides:
        raise ValueError("overrides apply to a file; this experiment is already resolved")
    with faults_of(file):
        return _run(_Order(experiment, out, overwrite, quiet), Interrupts(()), timings)


def run_experiment(experiment: Experiment, out: str | os.PathLike | None = None, overwrite: bool = False,
                   quiet: bool = False, main_began_s: float | None = None) -> Result:
    """Run an experiment for a program: write results, also when interrupted.

    The first SIGINT or SIGTERM stops the simulation; what was simulated by then is written and marked incomplete.

    Parameters
    ----------
    out : directory for the results; None: what the experiment says, else results/<name>.
    overwrite, quiet : as in `run`.
    main_began_s : `time.perf_counter()` when the program began, for provenance.json; None: now.

    Returns
    -------
    Result
        Its `interrupted_by` is the signal that came, or None.

    Raises
    ------
    InputErrors
        The workload cannot be read, the deployment does not fit, or the directory is taken.
    Aborted
        A second signal came; nothing was written.
    """
    out = out or experiment.output.directory or Path("results", experiment.name)
    return _run(_Order(experiment, out, overwrite, quiet), Interrupts(), Timings(main_began_s))


class _Order(NamedTuple):
    """What is to be done with which experiment."""

    experiment: Experiment
    out: str | os.PathLike | None
    overwrite: bool
    quiet: bool


def _run(order: _Order, interrupts: Interrupts, timings: Timings) -> Result:
    if order.out is not None:
        check_free(order.out, order.overwrite)      # before any work is done in vain
    with interrupts:
        workload = assemble.prepare(order.experiment)
        with Progress(len(workload), order.quiet) as progress:

            def monitor(clock_ns: int, finished_requests: int) -> bool:
                progress.show(clock_ns, finished_requests)
                return interrupts.signal_number is not None

            if order.out is None:
                result = _run_in_memory(order.experiment, workload, monitor)
            else:
                result = _run_into_files(order, workload, monitor, timings)
    result.interrupted_by = interrupts.signal_number
    return result


def _run_in_memory(experiment, workload, monitor) -> Result:
    from simulator.results.memory import MemoryRecorder  # either this or the files are needed

    recorder = MemoryRecorder(experiment.output, len(workload))
    finished = assemble.build(experiment, workload, recorder, monitor).run()
    return Result(_summary(experiment, finished), recorder.finish(finished))


def _run_into_files(order: _Order, workload, monitor, timings: Timings) -> Result:
    from simulator.results.files import FileRecorder  # brings h5py, 60 ms that a run in memory does without
    from simulator.results.load import load_results

    experiment, resolved = order.experiment, resolved_toml(order.experiment)
    attributes = {"schema": SCHEMA, "name": experiment.name, "seed": experiment.seed, "version": __version__,
                  "resolved_toml": resolved}
    recorder = FileRecorder(experiment.output, len(workload), attributes)
    cluster = assemble.build(experiment, workload, recorder, monitor)
    timings.end("load")
    with staged(order.out, order.overwrite) as directory:
        with recorder.into(directory):
            timings.end("write")
            finished = cluster.run()
            timings.end("simulate")
            timings.move(recorder.spent_s, "simulate", "write")
            recorder.finish(finished)
        _write(directory / "summary.json", json_text(_summary(experiment, finished)))
        _write(directory / "resolved.toml", resolved)
        timings.end("write")
        _write(directory / "provenance.json", json_text(provenance(__version__, timings.as_dict())))
    return load_results(order.out)


def _summary(experiment: Experiment, finished) -> dict:
    return summary_of(finished, experiment.name, experiment.seed, experiment.slo)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
