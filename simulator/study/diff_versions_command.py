"""`python -m simulator diff-versions EXPERIMENT.toml OLD NEW`: an experiment under two versions of vLLM."""
import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simulator.config.layers import Layers, Source
from simulator.config.load import experiment_layers
from simulator.core.argument_types import whole_number
from simulator.errors import InputErrors
from simulator.results.report import notes
from simulator.study.responsible_rules import Search, changed_settings, first_requests, is_cuttable
from simulator.study.telling.said import Said, backends_of
from simulator.study.telling.screen import show
from simulator.study.two_versions import Side, completed, ready, version_of
from simulator.study.versions_text import Findings, findings_of, json_text, screen_text

DONE = 0
MOST_RUNS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="each pool that runs vLLM gets both versions")
    parser.add_argument("old", metavar="OLD", help="a version of vLLM, as in engine.vllm_version: 0.32")
    parser.add_argument("new", metavar="NEW", help="another one: 0.33")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--requests", type=whole_number, metavar="N", help=(
        "compare runs of the first N requests; default: all"))
    parser.add_argument("--runs", type=_count, default=MOST_RUNS, metavar="N", help=(
        "limit of runs that search for the rules behind the difference, most of them short; 0: no search; default: "
        f"{MOST_RUNS}"))
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar; warnings on stderr")


def run(options: argparse.Namespace) -> int:
    """Print the changes; return the exit status.

    It is 0 also where one of both versions refuses the experiment.

    Raises
    ------
    InputErrors
        Both versions refuse the experiment, or no pool runs vLLM.
    """
    versions = [version_of(options.old), version_of(options.new)]
    if versions[0] == versions[1]:
        raise InputErrors([f"diff-versions: expected two versions, found {versions[0]} twice"])
    layers = experiment_layers(options.experiment, options.overrides, "--set")
    old, new = sides = [_ready(layers, version, options.requests) for version in versions]
    if all(side.faults for side in sides):
        shared = [fault for fault in old.faults if fault in new.faults]
        raise InputErrors([*shared, *(f"vLLM {side.version}: {fault}" for side in sides for fault in side.faults
                                      if fault not in shared)])
    if not (old.faults or new.faults):
        old, new = sides = [completed(side, None, options.quiet or options.json) for side in sides]
    found = findings_of(options.experiment, old, new, list(
        changed_settings(layers, old, new) if not (old.faults or new.faults) else ()))
    if found.extent is not None and found.extent.first is not None and options.runs:
        with _bar(options.runs, options.quiet or options.json) as count:
            found = found._replace(answer=Search(layers, old, new, options.runs, count).answer())
    _print(found, options)
    return DONE


def _print(found: Findings, options: argparse.Namespace) -> None:
    if options.json:
        print(json_text(found))
        return
    print(screen_text(found))
    said = Said()
    sides = [side for side in (found.old, found.new) if side.result is not None]
    for side in sides:
        said.add(side.version, notes(side.result.summary), backends_of([side.experiment]))
    if sides:
        show(print, said, sides[-1].experiment, options.quiet, things="versions", names=True)


def _ready(layers: Layers, version: str, most: int | None) -> Side:
    """Return a side with at most so many requests.

    Raises
    ------
    InputErrors
        The requests depend on answers, and no key bounds their number.
    """
    side = ready(layers, version)
    if most is None or side.plan is None:
        return side
    if is_cuttable(side.plan.workload):
        return side._replace(plan=first_requests(side.plan, most))
    if not hasattr(side.experiment.workload.parameters, "num_requests"):
        has_sessions = hasattr(side.experiment.workload.parameters, "num_sessions")
        how = f"{'--set workload.num_sessions=N' if has_sessions else 'no key of [workload]'} bounds them"
        raise InputErrors([f"--requests: the requests of this workload depend on answers: {how}"])
    layers.merge({"workload": {"num_requests": most}}, Source("--requests", ""))
    return ready(layers, version)


@contextmanager
def _bar(most: int, is_quiet: bool) -> Iterator[Callable[[], None]]:
    """Yield a function that counts a run on a bar; without a terminal there is none."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm  # 20 ms, needed only on a terminal
    with tqdm(total=most, file=sys.stderr, leave=False, unit=" runs", dynamic_ncols=True) as bar:
        yield lambda: bar.update()


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return int(text)
