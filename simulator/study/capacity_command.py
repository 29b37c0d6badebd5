"""`python -m simulator capacity FILE.toml`: the largest load of a deployment, or the smallest deployment for a load."""
import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from simulator.config.layers import read_layers
from simulator.core.argument_types import whole_number
from simulator.errors import InputErrors, collect_faults, faults_of
from simulator.study.capacity.bounds import Bounds, bounds_of_options
from simulator.study.capacity.capacity_table import CapacityTable, as_vidur, check, forecast
from simulator.study.capacity.estimate import estimated_rate
from simulator.study.capacity.mixed import mixed
from simulator.study.capacity.point_search import Answer, answer, answer_as_vidur, cost_per_hour, notes_of, start_of
from simulator.study.capacity.prober import ProbeFailed, Prober, check_first
from simulator.study.capacity.search_directory import opened
from simulator.study.capacity.summary_text import (
    SCHEMA,
    content_of,
    curve_csv,
    line_of,
    mix_content,
    mix_table,
    table_of,
)
from simulator.study.capacity.varied import Varied
from simulator.study.capacity.verdict import Verdict
from simulator.study.distributed.option import add_dask, elsewhere
from simulator.study.report_command import check_installed, write_page
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.manifest import text_of
from simulator.study.sweep.names import CAPACITY, CURVE, LOOK
from simulator.study.sweep.preview import commented, not_run
from simulator.study.sweep.study_file import Study, check_points, read_study
from simulator.study.sweep.writing import write
from simulator.study.telling.screen import lines_of, show

DONE, SOME_FAILED, NOTHING, THIN = 0, 1, 3, 4
FILE = CAPACITY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("file", metavar="FILE.toml", help=(
        'a study with kind = "capacity"; or an experiment, with --slo'))
    parser.add_argument("--slo", action="append", default=[], metavar="KEY=LIMIT", help=(
        "bounds to hold, for an experiment: ttft_ms.p99=500, at most; goodput_share=0.99, at least; repeatable"))
    parser.add_argument("--vary", metavar="KEY", help="of an experiment: the key; default: the rate of arrivals")
    parser.add_argument("--out", metavar="DIR", help="directory of the study; default: results/<name>")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; repeatable")
    parser.add_argument("--jobs", type=whole_number, default=1, metavar="N",
                        help="runs of a probe side by side; default: 1")
    add_dask(parser)
    parser.add_argument("--json", action="store_true", help="print the content of capacity.json, not a table")
    parser.add_argument("--report", action="store_true", help="write report.html into DIR, too (extra `report`)")
    parser.add_argument("--quiet", action="store_true", help="the answer alone, and warnings on stderr")


def run(options: argparse.Namespace) -> int:
    """Search, write capacity.json, print the answer; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the study; nothing is written.
    """
    if options.dask is not None and options.jobs > 1:
        raise InputErrors(["--jobs: expected none beside --dask: its workers are the processes"])
    if options.report:
        check_installed()
    study = _study(options)
    (bounds, varied), points = collect_faults(lambda: check(study), lambda: check_points(study))
    _check_ends(study, varied, points[0])
    directory = Path(options.out or study.base.output.directory or Path("results", study.name)).absolute()
    study = study if study.settings.compat is None else as_vidur(study)
    if not (directory / LOOK).exists():
        check_first(study, bounds, points[0])
    try:
        with ExitStack() as stack:
            where = opened(study, bounds, directory, options.jobs, elsewhere(options.dask, stack))
            asked = _Asked(study, bounds, varied, options, where)
            content, text, found, is_thin = asked.mix() if study.settings.mix else asked.points(points)
    except ProbeFailed as failed:
        print(f"{study.file}: {failed}\nresults in {directory}", file=sys.stderr)
        return SOME_FAILED
    content |= study.risk_content | where.said.content()
    _write(directory, content)
    print(json.dumps(content, indent=2, allow_nan=False) if options.json else f"{text}\n\nresults in {directory}")
    show(print, where.said, study.base, options.quiet or options.json)
    if options.report:
        place = write_page(directory)
        if not options.json:
            print(f"report in {place}")
    return DONE if found else THIN if is_thin else NOTHING


def validated(file: str, overrides: list[str]) -> str:
    """Return the plan of a study as comments, and the study with all defaults.

    Nothing is run.

    Raises
    ------
    InputErrors
        All faults of the study.
    """
    study = read_study(file, overrides, CapacityTable, "--set")
    (_, varied), points = collect_faults(lambda: check(study), lambda: check_points(study))
    _check_ends(study, varied, points[0])
    return commented([*forecast(study, points), *not_run(study, points)]) + text_of(study)


def _check_ends(study: Study, varied: Varied, point: dict[str, Any]) -> None:
    """Make sure that both ends of the range are valid experiments."""
    faults: list[str] = []
    for value in (varied.span.low, varied.span.high):
        try:
            study.experiment_of(point | varied.assignment(value))
        except InputErrors as errors:
            faults += [f"{study.file}: {fault.removeprefix(f'{study.file}: ')}" for fault in errors.faults]
    if faults:
        raise InputErrors(dict.fromkeys(faults))


class _Asked:
    """A question, and the search that answers it."""

    def __init__(self, study: Study, bounds: Bounds, varied: Varied, options: argparse.Namespace, where: Laboratory):
        self._study, self._bounds, self._varied, self._laboratory = study, bounds, varied, where
        self._quiet = options.quiet

    def points(self, points: list[dict[str, Any]]) -> tuple[dict, str, bool, bool]:
        """Search at each point.

        Returns
        -------
        tuple
            Content of capacity.json, a text, whether any point passes, and whether any value is thin.
        """
        answers: list[tuple[dict, Answer]] = []
        for point in points:
            study = self._study._replace(base=self._study.experiment_of(point))
            start = self._start(study, point, answers)
            prober = Prober(self._laboratory, study, self._varied, self._bounds, point=point)
            search = answer if study.settings.compat is None else answer_as_vidur
            answers.append((point, search(prober, study, self._varied, self._bounds, start, self._tell)))
        contents = [({"point": point} if point else {}) | self._content(point, each) for point, each in answers]
        text = "\n\n".join((f"{lines_of(_words(point))}\n" if point else "") + self._text(each)
                           for point, each in answers)
        content = {"schema": SCHEMA, "name": self._study.name}
        content |= {"points": contents} if points[0] else contents[0]
        return (content, text, any(each.value is not None for _, each in answers),
                any(each.thin is not None for _, each in answers))

    def mix(self) -> tuple[dict, str, bool, bool]:
        """Search for the best mix; returns as `points` does."""
        target = self._varied.now
        chosen, kinds = mixed(self._study, self._bounds, self._varied, self._laboratory, self._tell)
        return ({"schema": SCHEMA, "name": self._study.name} | mix_content(chosen, kinds, target, self._bounds),
                mix_table(chosen, kinds, target), chosen.answer is not None,
                any(verdict.is_thin for _, verdict in chosen.verdicts))

    def _start(self, study: Study, point: dict[str, Any], answers: list[tuple[dict, Answer]]) -> float:
        """Return the start value: the answer of the point with most keys in common, the last of several."""
        solved = [(sum(before.get(key) == value for key, value in point.items()), number, each.value)
                  for number, (before, each) in enumerate(answers) if each.value is not None]
        if solved and study.settings.compat is None:
            return max(solved)[2]
        with faults_of(self._study.file):
            return start_of(study, self._varied, lambda: estimated_rate(study.base))

    def _content(self, point: dict[str, Any], each: Answer) -> dict[str, Any]:
        assignment = point | (self._varied.assignment(each.value) if each.value is not None else {})
        return content_of(each, self._varied, self._bounds, cost_per_hour(self._study.experiment_of(assignment)))

    def _text(self, each: Answer) -> str:
        notes = "".join(f"\n{lines_of(f'note: {note}')}" for note in notes_of(each, self._bounds))
        return table_of(each, self._varied, self._bounds) + notes

    def _tell(self, verdict: Verdict, what: str | None = None) -> None:
        if not self._quiet:
            print(line_of(verdict, what or self._varied.key), file=sys.stderr, flush=True)


def _study(options: argparse.Namespace) -> Study:
    """Return the study of a file, or the one that the options define for an experiment."""
    if "study" in read_layers(options.file).data:
        asked = [name for name in ("slo", "vary") if getattr(options, name)]
        if asked:
            raise InputErrors([f"--{name}: {options.file} is a study, whose [study] says it; --set study.{name} "
                               "overrides that" for name in asked])
        return read_study(options.file, options.overrides, CapacityTable, "--set")
    if not options.slo:
        raise InputErrors([f'{options.file}: no study: expected a table [study] with kind = "capacity", or --slo, for '
                           "instance --slo ttft_ms.p99=500"])
    bounds = bounds_of_options(options.slo)
    table: dict[str, Any] = {}
    for bound in bounds.bounds:
        table.setdefault(bound.key, {})["max" if bound.is_most else "min"] = bound.limit
    if not bounds.wants_stable:             # else the default, or the value of --set
        table["backlog"] = "any"
    texts = ['study.kind="capacity"', f"study.slo={_toml(table)}"]
    texts += [f"study.vary={json.dumps(options.vary)}"] * bool(options.vary)
    return read_study(options.file, [*options.overrides, *texts], CapacityTable, "--set")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _words(point: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in point.items())


def _write(directory: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    rows = content.get("curve", [])
    for each in content.get("points", ()):
        rows = rows + [each["point"] | row for row in each["curve"]]
    files = {FILE: text} | ({CURVE: curve_csv(rows)} if rows else {})
    for name, body in files.items():
        write(directory / name, body)
