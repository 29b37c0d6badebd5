"""`python -m simulator tune STUDY.toml`: rank deployments, and write the experiments of the winners."""
import argparse
import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from simulator.core.argument_types import duration_s
from simulator.errors import InputErrors, number_of
from simulator.study.distributed.option import add_dask, elsewhere
from simulator.study.report_command import check_installed, write_page
from simulator.study.sweep.machine import fitting, free_bytes, usable_cores
from simulator.study.sweep.manifest import text_of
from simulator.study.sweep.names import LOOK
from simulator.study.sweep.preview import commented, not_run
from simulator.study.sweep.study_file import read_study
from simulator.study.sweep.writing import write
from simulator.study.telling.said import wrapped
from simulator.study.telling.screen import lines_of, show
from simulator.study.tuning.auto_tune import RESULT, auto_tune
from simulator.study.tuning.candidates import Candidates
from simulator.study.tuning.files import StudyResults, results_of, write_all
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.held_out import held_out
from simulator.study.tuning.result import CandidateResult, Stopped
from simulator.study.tuning.sampling_rules import OPTUNA
from simulator.study.tuning.search import check_numbers, chosen_search, feasible_of, searched
from simulator.study.tuning.study_directory import opened
from simulator.study.tuning.summary_text import answer_of, screen_of, words_of
from simulator.study.tuning.trying import trier_of
from simulator.study.tuning.tune_table import CAPACITY, Question, TuneTable, check
from simulator.study.watch import Watch

DONE, SOME_FAILED, NOTHING, RUN_AGAIN, SIGNAL = 0, 1, 3, 75, 128
LINE_S = 30.0                   # between two lines of progress
RUN_BADLY = ("failed", "timeout", "killed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("study", metavar="STUDY.toml", help=(
        'an experiment with a table [study], kind = "tune"; with --compat an experiment'))
    parser.add_argument("--out", metavar="DIR", help="directory of the study; default: results/<name>")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; repeatable")
    parser.add_argument("--jobs", default="cores", metavar="N", help="processes side by side; default: the cores")
    add_dask(parser)
    parser.add_argument("--dry-run", action="store_true", help="print how many candidates there are, and why not more")
    parser.add_argument("--stop-after", type=duration_s, metavar="55m", help=(
        "start no run after this time, and exit with 75: run again"))
    parser.add_argument("--compat", choices=("auto_tune",), help=(
        "search as vLLM's auto_tune.sh does, by its environment variables (MODEL, NUM_SEQS_LIST, ...), and write its "
        "result.txt"))
    parser.add_argument("--report", action="store_true", help="write report.html into DIR, too (extra `report`)")
    parser.add_argument("--quiet", action="store_true", help="the best candidate alone, and warnings on stderr")


def run(options: argparse.Namespace) -> int:
    """Search, write the ranking, print the best; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the study; nothing is written.
    """
    if options.compat is not None:
        return _as_auto_tune(options)
    if options.report:
        check_installed()
    question = check(read_study(options.study, options.overrides, TuneTable, "--set"))
    num_processes = _jobs(options)
    candidates = feasible_of(question)
    if options.dry_run:
        if options.report:
            raise InputErrors(["--report: does not go with --dry-run, which runs nothing"])
        return _dry_run(question, candidates)
    directory = _directory(options, question.study.base.output.directory, question.study.name)
    watch = Watch(options.stop_after)
    if not (directory / LOOK).exists():
        check_numbers(question, candidates)
    try:
        with ExitStack() as stack:
            at = elsewhere(options.dask, stack, watch.is_over)
            stack.enter_context(watch.interrupts)
            laboratory = opened(question, directory, num_processes, watch.is_over, at)
            trier = trier_of(question, laboratory, directory, watch.is_over, _Progress(options.quiet).tell)
            outcome = searched(question, trier, candidates)
            beside = held_out(question, laboratory, outcome)
    except Stopped:
        number = watch.interrupts.signal_number
        print(f"stopped; runs so far are in {directory}, run again to go on", file=sys.stderr)
        return RUN_AGAIN if number is None else SIGNAL + number
    results = results_of(question, outcome, trier.said, beside)
    write_all(question, outcome, results, directory)
    print(answer_of(question, results) if options.quiet
          else f"{screen_of(question, outcome, results)}\n\nresults in {directory}")
    if thin := results.summary.get("thin"):
        print("\n".join(wrapped(f"warning: {thin}")), file=sys.stderr)
    show(print, trier.said, question.study.base, options.quiet)
    if options.report:
        place = write_page(directory)
        if not options.quiet:
            print(f"report in {place}")
    return _status(question, outcome, results)


def validated(file: str, overrides: list[str]) -> str:
    """Return the plan of a study as comments, and the study with all defaults.

    Nothing is run.

    Raises
    ------
    InputErrors
        All faults of the study.
    """
    study = read_study(file, overrides, TuneTable, "--set")
    question = check(study)
    candidates = feasible_of(question)
    first = [] if candidates is None else [each.assignment for each in candidates.kept]
    lines = [*_counted(question, candidates), _runs(question, candidates), *not_run(study, first)]
    return commented(lines) + text_of(study)


def _runs(question: Question, candidates: Candidates | None) -> str:
    """Return the number of runs, in words."""
    given = question.settings
    most = given.max_trials if candidates is None else min(len(candidates.kept), given.max_trials)
    if given.load == CAPACITY:
        return (f"for each the search of `capacity`, {given.min_seeds} to {given.max_seeds} runs a rate: at least "
                f"{number_of(most * given.min_seeds, 'run')}")
    runs = most * len(question.study.seeds) * max(len(given.users), 1) + 2 * given.held_out
    return f"at most {number_of(runs, 'run')} of full length"


def _status(question: Question, outcome: Findings, results: StudyResults) -> int:
    failed = [each for each in outcome.results + outcome.eliminated if each.status in RUN_BADLY]
    for each in failed[:3]:
        print(lines_of(f"{each.status}: {words_of(question, each.candidate)}: {each.why}"), file=sys.stderr)
    held_out = results.summary.get("held_out", {})
    if failed or any(held_out[name]["status"] in RUN_BADLY for name in ("best", "experiment") if name in held_out):
        return SOME_FAILED
    return DONE if results.ranking else NOTHING


def _dry_run(question: Question, candidates: Candidates | None) -> int:
    """Print the number of candidates."""
    print("\n".join(_counted(question, candidates)))
    return DONE


def _counted(question: Question, candidates: Candidates | None) -> list[str]:
    if candidates is None:
        points = "ranges" if question.study.has_ranges else f"{question.study.count():,} points"
        return [f'{points}; search = "{OPTUNA}", {question.settings.max_trials:,} candidates at most']
    kinds: dict[str, list[str]] = {}
    for each in candidates.dropped:
        kinds.setdefault(each.kind, []).append(each.why)
    return [f'{len(candidates.kept):,} candidates, search = "{chosen_search(question, len(candidates.kept))}"', *(
        f"{len(reasons):,} dropped, {kind.replace('_', ' ')}: {reasons[0]}" for kind, reasons in kinds.items())]


def _as_auto_tune(options: argparse.Namespace) -> int:
    """Run the search of auto_tune.sh; return the exit status."""
    asked = {"--dry-run": options.dry_run, "--stop-after": options.stop_after, "--dask": options.dask,
             "--report": options.report}
    if any(asked.values()):
        raise InputErrors([f"--compat auto_tune: goes with none of {', '.join(asked)}"])
    tell = partial(print, file=sys.stderr, flush=True) if not options.quiet else _silent
    name, lines, is_found = auto_tune(options.study, options.overrides, os.environ, tell)
    directory = _directory(options, None, f"{name}-auto_tune")
    write(directory / RESULT, "".join(f"{line}\n" for line in lines))
    print(lines[-1] if options.quiet else "\n".join(lines) + f"\n\nresults in {directory}")
    return DONE if is_found else NOTHING


def _silent(text: str) -> None:
    pass


def _directory(options: argparse.Namespace, given: str | None, name: str) -> Path:
    return Path(options.out or given or Path("results", name)).absolute()


def _jobs(options: argparse.Namespace) -> int:
    """Return how many processes run side by side; with Dask they are not here."""
    if options.jobs == "cores":
        return usable_cores() if options.dask is None else 1
    if options.dask is not None:
        raise InputErrors(["--jobs: expected none beside --dask: its workers are the processes"])
    if not options.jobs.isdecimal() or int(options.jobs) < 1:
        raise InputErrors([f'--jobs: expected a whole number of at least 1, or "cores"; found "{options.jobs}"'])
    return fitting(int(options.jobs), 0.0, free_bytes()).num_processes


class _Progress:
    """Prints the number of candidates tried, every `LINE_S`."""

    def __init__(self, is_quiet: bool):
        self._is_quiet, self._count, self._printed_s = is_quiet, 0, time.monotonic()

    def tell(self, result: CandidateResult) -> None:
        """Count a candidate."""
        self._count += 1
        if not self._is_quiet and time.monotonic() - self._printed_s >= LINE_S:
            self._printed_s = time.monotonic()
            print(f"{self._count:,} candidates tried; the last: {result.candidate.layout}, {result.status}",
                  file=sys.stderr, flush=True)
