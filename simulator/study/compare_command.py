"""`python -m simulator compare COMPARISON.toml`: one workload under several experiments, side by side."""
import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.config.load import commented_toml
from simulator.core.argument_types import whole_number
from simulator.core.cores import available_cores
from simulator.errors import number_of
from simulator.results.interrupts import Aborted
from simulator.study.compare import FILE, Measured, Plan, measure, prepare, said_of, table, write
from simulator.study.compare_file import read_comparison
from simulator.study.sweep.preview import commented
from simulator.study.telling.screen import show

DONE = 0
WORTH_PROCESSES = 200_000       # of all variants; fewer take less time than processes need to start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("comparison", metavar="COMPARISON.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the base experiment; VALUE is TOML; repeatable")
    parser.add_argument("--out", metavar="DIR", help=(
        f"write DIR/{FILE}, and the results of each variant to a folder of its name"))
    parser.add_argument("--overwrite", action="store_true", help="replace results that are complete already")
    parser.add_argument("--quiet", action="store_true", help=(
        "no progress bar, no wall times; the table alone, and warnings on stderr"))
    parser.add_argument("--jobs", type=whole_number, metavar="N", help=(
        "variants that run at once, each in a process that holds the requests; default: as many as there are cores, 1 "
        f"where all variants together have fewer than {WORTH_PROCESSES:,} requests"))


def run(options: argparse.Namespace) -> int:
    """Print the table, wall times to stderr; return the exit status.

    A variant is named below the table if its backend needs an extra that is not installed; the others run: the
    status is 0 then. A signal ends the variants that run and drops their results; the table of finished variants is
    still printed.

    Raises
    ------
    InputErrors
        A variant has another fault, or no variant is available; no variant was run then.
    KeyboardInterrupt
        A signal was received.
    """
    comparison = read_comparison(options.comparison, options.overrides, "--set")
    with _ended_by_sigterm():
        plan = prepare(comparison, options.out, options.overwrite)
        results = _run_all(plan, options)
    print(table(results, plan.unavailable))
    said = said_of(plan, results)
    if options.out:
        write(Path(options.out, FILE), results, plan.unavailable, said)
        print(f"\nresults in {options.out}")
    show(print, said, next(iter(plan.experiments.values())), options.quiet, things="variants", names=True)
    return DONE


def validated(file: str, overrides: list[str]) -> str:
    """Return the plan of a comparison as comments, and each variant with all defaults.

    Nothing is run.

    Raises
    ------
    InputErrors
        All faults of all variants.
    """
    comparison = read_comparison(file, overrides, "--set")
    plan = prepare(comparison, None, False)
    lines = [f"{number_of(len(plan.experiments), 'variant')}: as many runs of {len(plan.workload):,} requests"]
    lines += [f"not available: {name}: {why}" for name, why in plan.unavailable.items()]
    return commented(lines) + "\n".join(f"# variant {name}\n{commented_toml(experiment)}"
                                        for name, experiment in comparison.experiments.items())


def _run_all(plan: Plan, options: argparse.Namespace) -> dict[str, Measured]:
    total, width = len(plan.experiments), max(map(len, plan.experiments))
    results: dict[str, Measured] = {}
    try:
        jobs = options.jobs or (available_cores() if total * len(plan.workload) >= WORTH_PROCESSES else 1)
        for name, measured in measure(plan, options.out, options.overwrite, options.quiet, jobs):
            results = {each: results.get(each, measured) for each in plan.experiments if each in {*results, name}}
            if not options.quiet:
                print(f"{len(results)}/{total} {name:{width}} {measured.wall_s:8.2f} s", file=sys.stderr)
    except KeyboardInterrupt:
        if results:
            print(table(results, plan.unavailable), flush=True)
        print(f"interrupted after {len(results)} of {total} variants", file=sys.stderr)
        raise
    return results


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM act like SIGINT."""
    if threading.current_thread() is not threading.main_thread():       # Python handles signals there only
        yield
        return
    previous = signal.signal(signal.SIGTERM, _abort)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _abort(number: int, frame) -> None:
    raise Aborted(number)
