"""`python -m simulator reconstruct EXPERIMENT.toml --metrics FILE`: the demand behind metrics, as an experiment."""
import argparse
import json
import sys
from pathlib import Path

from simulator.config.load import load_experiment
from simulator.core.argument_types import whole_number
from simulator.errors import InputErrors, collect_faults
from simulator.results.directory import check_free, staged, tables_contents
from simulator.study.measured.source import Source
from simulator.study.reconstruct import access_log, spans
from simulator.study.reconstruct.access_log import Requests
from simulator.study.reconstruct.estimate import Answer, Question, answer_of
from simulator.study.reconstruct.replay import site_of, write_draw
from simulator.study.reconstruct.report import content_of, text_of
from simulator.study.server_metrics import files, statistics_lines
from simulator.study.server_metrics.instances import instances_of
from simulator.study.server_metrics.series import Series
from simulator.study.sweep.writing import write
from simulator.study.what_if import FILE as VARIANTS
from simulator.study.what_if import errors_of, intervals, intervals_text, json_of, read_variants

DONE = 0
FILE = "reconstruction.json"
EPOCH_S = 1e9                   # a log with smaller times counts from its own start
EXPERIMENT, TRACE = "experiment.toml", "trace.csv"
CONTENTS = tables_contents("reconstruct", r"(experiment|what_if)(_\d+)?\.toml|trace(_\d+)?\.csv|reconstruction\.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help=(
        "the servers as they were; its [workload] is replaced"))
    parser.add_argument("--metrics", action="append", required=True, metavar="FILE", help=(
        "answers of Prometheus to query_range as JSON, pages of its text format, a folder of either, or a log with "
        "vLLM's lines of statistics; plain or .gz; repeatable"))
    parser.add_argument("--log", metavar="FILE", help=(
        "access log as CSV (time, prompt tokens, output tokens; latency, status), or spans of OpenTelemetry as JSON"))
    parser.add_argument("--log-times", choices=("arrival", "end"), default="arrival",
                        help="instant that a time of the CSV means; end needs its latency; default: arrival")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--draws", type=whole_number, default=10, metavar="N", help=(
        "reconstructions that are kept and written; default: 10"))
    parser.add_argument("--what-if", metavar="FILE.toml", help=(
        "tables [[variants]] as of `compare`: each is run on every draw, with intervals"))
    parser.add_argument("--no-restarts", action="store_true", help="do not replay restarts")
    parser.add_argument("--out", metavar="DIR", help="default: results/NAME_reconstructed")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier reconstruction")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(options: argparse.Namespace) -> int:
    """Write experiments, traces and numbers; print a table; return the exit status.

    Raises
    ------
    InputErrors
        All faults of experiment, metrics, log and variants; nothing is written.
    """
    experiment, (series, log), variants = collect_faults(
        lambda: load_experiment(options.experiment, options.overrides, "--set"), lambda: _measured(options),
        lambda: read_variants(options.what_if) if options.what_if else None)
    folder = Path(options.out or Path("results", f"{experiment.name}_reconstructed"))
    check_free(folder, options.overwrite, CONTENTS)
    question = Question(site_of(experiment), instances_of(series), log, options.draws, experiment.seed,
                        not options.no_restarts)
    answer = answer_of(question, _progress(options, "replays"))
    with staged(folder, options.overwrite, CONTENTS) as place:
        bases = _write(question, answer, place)
        found = None if variants is None else _intervals(variants, place, bases, answer, options)
        content = content_of(experiment.name, question, answer, None if found is None else json_of(found))
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write(place / FILE, text)
    if options.json:
        print(text, end="")
        return DONE
    print(text_of(experiment.name, question, answer))
    if found is not None:
        print("\n" + intervals_text(found))
    print(f"\nexperiments in {folder}: {', '.join(bases[:2])}{', ...' * (len(bases) > 2)}")
    return DONE


def _measured(options: argparse.Namespace) -> tuple[list[Series], Requests | None]:
    """Return metrics and log; lines of statistics get their year from the log."""
    paths = [str(path) for file in options.metrics for path in files.files_in(Path(file))]
    *sources, log = collect_faults(*(lambda path=path: Source(path) for path in paths), lambda: _log(options))
    have_lines = [statistics_lines.recognises(source) for source in sources]
    if any(have_lines) and not all(have_lines):
        raise InputErrors(["--metrics: expected answers of Prometheus or lines of statistics, found both: they count "
                           "the same requests"])
    near_s = float(log.arrival_s[0]) if log is not None and log.arrival_s[0] >= EPOCH_S else None
    found = collect_faults(*(lambda source=source: files.read(source, near_s) for source in sources))
    return [each for series in found for each in series], log


def _log(options: argparse.Namespace) -> Requests | None:
    if options.log is None:
        return None
    source = Source(options.log)
    if spans.recognises(source):
        return spans.read(source)
    return access_log.read(source, options.log_times == "end")


def _write(question: Question, answer: Answer, folder: Path) -> list[str]:
    """Write all draws; return the names of their experiment files, the best first."""
    names = []
    for i, candidate in enumerate(answer.kept, 1):
        ending = "" if i == 1 else f"_{i:02d}"
        names.append(EXPERIMENT.replace(".", f"{ending}."))
        write_draw(question.site, candidate.draw, folder, (names[-1], TRACE.replace(".", f"{ending}.")))
    return names


def _intervals(variants, folder: Path, bases: list[str], answer: Answer, options: argparse.Namespace):
    """Return what `intervals` does; faults name the file of --what-if, not the copy in the folder."""
    try:
        return intervals(variants, folder, bases, errors_of(answer.kept[0].rows, answer.facts.edge),
                         _progress(options, "draws"))
    except InputErrors as errors:
        raise InputErrors(each.replace(str(folder / VARIANTS), options.what_if) for each in errors.faults) from None


def _progress(options: argparse.Namespace, things: str):
    def show(done: int, total: int) -> None:
        if not options.quiet and sys.stderr.isatty():
            print(f"\r{done}/{total} {things}", end="\n" * (done == total), file=sys.stderr, flush=True)

    return show
