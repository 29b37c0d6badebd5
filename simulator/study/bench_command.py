"""`python -m simulator bench latency | throughput | serve EXPERIMENT.toml`: vLLM's benchmarks on simulated time."""
import argparse
import sys

from simulator.errors import InputErrors
from simulator.study.bench import offline, serve
from simulator.study.bench.flags import REFUSED, WITHOUT_EFFECT, add_others, given
from simulator.study.telling.screen import show

DONE = 0
BENCHES = {                     # name: function that adds its flags, function that runs it, summary
    "latency": (offline.add_latency, offline.latency, "batches of one size, one after the other"),
    "throughput": (offline.add_throughput, offline.throughput, "requests that are all there at once"),
    "serve": (serve.add_arguments, serve.bench, "requests as a client sends them"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    commands = parser.add_subparsers(dest="bench", metavar="BENCH", required=True)
    for name, (add, _, purpose) in BENCHES.items():
        bench = commands.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        bench.set_defaults(refuse=bench.error)
        add(bench)
        add_others(bench, name)
        bench.add_argument("--quiet", action="store_true", help="the benchmark's own lines alone, and warnings")


def run(options: argparse.Namespace) -> int:
    """Print the output of vLLM's benchmark; return the exit status.

    Raises
    ------
    InputErrors
        All faults of flags and experiment.
    """
    refused = [flag for flag in given(options, REFUSED) if options.bench in flag.commands]
    if refused:
        raise InputErrors([f"bench {options.bench}: {flag.name}: refused: {flag.why}" for flag in refused])
    found = BENCHES[options.bench][1](options)
    print(found.text)
    if not options.quiet:
        _tell(options, found.notes)
    show(print, found.said, found.experiment, options.quiet, on_stderr=True)
    return DONE


def _tell(options: argparse.Namespace, notes: list[str]) -> None:
    """Print the flags without effect, and the notes on others."""
    without = {}
    for flag in given(options, WITHOUT_EFFECT):
        without.setdefault(flag.why, []).append(flag.name)
    for why, names in without.items():
        print(f"note: {', '.join(names)}: without effect: {why}", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
