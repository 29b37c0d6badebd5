"""`python -m simulator compare COMPARISON.toml`: one workload under several experiments, side by side."""
import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.results.interrupts import Aborted
from simulator.study.compare import FILE, Measured, measure, prepare, table, write
from simulator.study.compare_file import Comparison, read_comparison

DONE = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("comparison", metavar="COMPARISON.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the base experiment; VALUE is TOML; repeatable")
    parser.add_argument("--out", metavar="DIR", help=(
        f"write DIR/{FILE}, and the results of each variant to a folder of its name"))
    parser.add_argument("--overwrite", action="store_true", help="replace results that are complete already")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no wall times")


def run(options: argparse.Namespace) -> int:
    """Print the table, wall times to stderr; return the exit status.

    A signal ends the variant that runs, whose results are dropped; the table of those before it is still printed.

    Raises
    ------
    InputErrors
        What is wrong with any variant; nothing was run then.
    KeyboardInterrupt
        A signal came.
    """
    comparison = read_comparison(options.comparison, options.overrides, "--set")
    results: dict[str, Measured] = {}
    with _ended_by_sigterm():
        try:
            prepare(comparison, options.out, options.overwrite)
            _run_all(comparison, options, results)
        except KeyboardInterrupt:
            if results:
                print(table(results), flush=True)
            print(f"interrupted after {len(results)} of {len(comparison.experiments)} variants", file=sys.stderr)
            raise
    print(table(results))
    if options.out:
        write(Path(options.out, FILE), results)
        print(f"\nresults in {options.out}")
    return DONE


def _run_all(comparison: Comparison, options: argparse.Namespace, results: dict[str, Measured]) -> None:
    total, width = len(comparison.experiments), max(map(len, comparison.experiments))
    for name, measured in measure(comparison, options.out, options.overwrite, options.quiet):
        results[name] = measured
        if not options.quiet:
            print(f"{len(results)}/{total} {name:{width}} {measured.wall_s:8.2f} s", file=sys.stderr)
        for note in measured.notes:
            print(f"warning: {name}: {note}", file=sys.stderr)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what SIGINT does."""
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
