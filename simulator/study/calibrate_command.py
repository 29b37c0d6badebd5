"""`python -m simulator calibrate STUDY.toml`: fit an experiment to measurements, and report its prediction errors."""
import argparse
import os
import sys
import time
from pathlib import Path

from simulator.config.load import commented_toml
from simulator.core.argument_types import duration_s
from simulator.errors import number_of
from simulator.study.calibration.calibrate_table import AUTO, REQUESTS, STEPS
from simulator.study.calibration.evaluations import FILE as EVALUATIONS
from simulator.study.calibration.evaluations import Evaluations
from simulator.study.calibration.files import check_free, hash_of_question, write_all
from simulator.study.calibration.question import Question, read_question
from simulator.study.calibration.solver import Solver, Stopped
from simulator.study.calibration.steps import scipy_optimize
from simulator.study.calibration.summary_text import text_of
from simulator.study.sweep.manifest import keep_program
from simulator.study.sweep.preview import commented
from simulator.study.watch import Watch

DONE, RUN_AGAIN, SIGNAL = 0, 75, 128
LINE_S = 30.0                   # between two lines of progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("study", metavar="STUDY.toml", help='an experiment with a table [study], kind = "calibrate"')
    parser.add_argument("--no-fit", dest="is_fitted", action="store_false", help="only compare, fit nothing")
    parser.add_argument("--force", action="store_true", help=(
        "take data of which the client was the bottleneck, or too much failed"))
    parser.add_argument("--level", choices=(AUTO, STEPS, REQUESTS), help="as study.level")
    parser.add_argument("--out", metavar="DIR", help="where the files go; default: results/<name>")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file, and of the experiments that it names; repeatable")
    parser.add_argument("--overwrite", action="store_true", help="replace the answer to another question")
    parser.add_argument("--stop-after", type=duration_s, metavar="55m", help=(
        "start no simulation after this time, and exit with 75: run again"))
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary; notes are printed")


def run(options: argparse.Namespace) -> int:
    """Fit, write the files, print the summary; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the study, its experiments or its data; nothing is written.
    """
    given = [f'study.level="{options.level}"'] if options.level else []
    question = read_question(options.study, [*given, *options.overrides], options.is_fitted, options.force)
    if question.fit or question.settings.residual:
        scipy_optimize()                        # missing: now, and not after hours
    folder = Path(options.out or Path("results", question.name)).absolute()
    asked = hash_of_question(question)
    check_free(folder, asked, options.is_fitted, options.overwrite)
    if options.overwrite:
        (folder / EVALUATIONS).unlink(missing_ok=True)
    watch = Watch(options.stop_after)
    try:
        with watch.interrupts, Evaluations(folder, asked) as evaluations:
            progress = _Progress(question, options.quiet)
            answer = Solver(question, folder, evaluations, watch.is_over, progress.tell).answer()
    except Stopped:
        number = watch.interrupts.signal_number
        print(f"stopped; evaluations so far are in {folder}, run again to go on", file=sys.stderr)
        return RUN_AGAIN if number is None else SIGNAL + number
    names = write_all(answer, folder, asked, options.overrides)
    keep_program(folder)
    if not options.quiet:
        print(f"{text_of(answer)}\n\n{', '.join(names)} in {os.path.relpath(folder)}")
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    return DONE


def validated(file: str, overrides: list[str]) -> str:
    """Return the plan of a calibration, and its experiment with all defaults.

    Nothing is run.

    Raises
    ------
    InputErrors
        All faults of the study, its experiments and its data.
    """
    question = read_question(file, overrides, is_forced=True)
    held = sum(each.is_held for each in question.sets)
    lines = [f"{number_of(len(question.sets), 'data set')}, {held} of them held out; "
             f"{number_of(len(question.fit), 'key')} "
             f"{'and a residual ' * bool(question.settings.residual)}fitted to {question.level}"]
    by_requests = question.by_requests()
    lines.append(f"at most {question.settings.evaluations:,} simulations of each data set, for {', '.join(by_requests)}"
                 if by_requests else "no simulation is needed to fit: iterations have a closed form")
    experiment = question.sets[0].experiment_of({})
    return commented([*lines, *(f"note: {note}" for note in question.notes)]) + commented_toml(experiment)


class _Progress:
    """Prints the progress of a fit to requests, every `LINE_S`."""

    def __init__(self, question: Question, is_quiet: bool):
        self._total, self._is_quiet = question.settings.evaluations, is_quiet
        self._began_s = self._printed_s = time.monotonic()

    def tell(self, count: int, least: float) -> None:
        """Show the number of evaluations, and the least objective."""
        now_s = time.monotonic()
        if not self._is_quiet and now_s - self._printed_s >= LINE_S:
            self._printed_s = now_s
            left_s = (now_s - self._began_s) / count * max(self._total - count, 0)
            print(f"{count:,}/{self._total:,} evaluations, objective {least:.6g}, {left_s:.0f} s left", file=sys.stderr,
                  flush=True)
