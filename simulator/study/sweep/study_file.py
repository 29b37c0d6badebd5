"""A study file: an experiment, and [study], with the kind of study and its settings.

Each kind of study has a Struct of its own for [study], which begins with the keys of `StudyTable`.
"""
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, field

from simulator import registry
from simulator.assembly.model_risk import Risk, faults_of, risk_of
from simulator.config.experiment import Experiment, Output, Section
from simulator.config.layers import Layers, Source, add_overrides, read_layers
from simulator.config.load import changed, plain, resolve
from simulator.config.reader import Reader
from simulator.config.words import show
from simulator.errors import InputErrors
from simulator.results.summary_keys import check_numbers
from simulator.study.sweep.anchored import anchored
from simulator.study.sweep.axes import Axis, Range, axis_of
from simulator.study.sweep.design import DRAWN, Point, count_of, flattened, is_chosen, points_of
from simulator.study.sweep.partly import Partly, Unread, faults_of_checks

ALL_CHECKED = 10_000            # points; above it each value of an axis is checked by itself
MOST_POINTS = 1_000_000         # unless `--limit` is given
MOST_SEEDS = 32
UNMOVED = ("seed", "name", "extends", "output", "study")       # keys of an experiment that cannot be axes
METRICS = ("ttft_ms.mean", "ttft_ms.p99", "tpot_ms.mean", "tpot_ms.p99", "e2el_ms.mean", "request_throughput",
           "output_throughput")
NOTHING = Output(requests=False, iterations=False)             # output of a run that is not kept

Share = Annotated[float, Meta(gt=0, lt=1)]


class WarmupRule(Section, kw_only=True):
    """The warm-up that is cut at the beginning of a run: one of the two keys."""

    requests: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="number of first requests")] = None
    seconds: Annotated[Annotated[float, Meta(ge=0)] | None, Meta(description="requests that arrived before")] = None

    def __post_init__(self):
        if (self.requests is None) == (self.seconds is None):
            raise ValueError("give requests or seconds")


class Statistics(Section, kw_only=True):
    """Precision of the numbers, [study.statistics]."""

    confidence: Annotated[Share, Meta(description="confidence of intervals")] = 0.95
    model_confidence: Annotated[Annotated[float, Meta(ge=0.5, lt=1)] | None, Meta(description=(
        "confidence over the latency model: runs are of a server as slow, beside its prediction, as this share of the "
        "points of deployments left out; absent: predictions as they are"))] = None
    warmup: Annotated[Literal["mser5", "none"] | WarmupRule | None, Meta(description=(
        "warm-up that is cut at the beginning; default: none for traces, mser5 for drawn workloads"))] = None
    precision: Annotated[float, Meta(ge=0, lt=1, description=(
        "half-width of `metrics`, relative to the mean, that runs are lengthened to; 0: one run for each seed"))] = 0.0
    metrics: Annotated[tuple[str, ...], Meta(min_length=1, description="keys of summary.json")] = METRICS
    max_requests: Annotated[int, Meta(ge=1, description="largest number of requests of a lengthened run")] = 400_000
    min_tail: Annotated[float, Meta(ge=0, description="observations beyond a percentile; with fewer it is thin")] = 50.0


class RunRules(Section, kw_only=True):
    """Rules for runs, [study.run]."""

    timeout_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description="wall clock of one run")] = float("inf")
    retries: Annotated[int, Meta(ge=0, le=100, description="new attempts if a process died or a run timed out")] = 1
    baseline: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description=(
        "number of the point that all others are paired with; absent: no pairs"))] = None
    probe: Annotated[int, Meta(ge=0, le=1000, description="number of points that --dry-run measures")] = 1


class StudyTable(Section, kw_only=True):
    """Keys of [study] that all kinds of studies have."""

    kind: Annotated[Literal[tuple(registry.STUDIES)], Meta(description="kind of study")]
    design: Annotated[Literal["grid", "zip", "list", "random", "lhs", "sobol"], Meta(description=(
        "combinations of values: all, side by side, [[study.points]], or `points` drawn ones"))] = "grid"
    seeds: Annotated[Annotated[int, Meta(ge=1, le=10**6)] | list[Annotated[int, Meta(ge=0, le=2**63 - 1)]],
                     Meta(description=(
        "runs of each point: a number, from the experiment's seed on, or the seeds; run r of every point has the same"
    ))] = 1
    points: Annotated[Annotated[int, Meta(ge=1)] | tuple[dict[str, Any], ...], Meta(description=(
        "number of drawn points; with the design list: tables [[study.points]]"))] = ()
    axes: Annotated[dict[str, Any], Meta(extra={"under": Range}, description=(
        "dotted key of the experiment -> values, a list or a range"))] = field(default_factory=dict)
    exclude: Annotated[tuple[dict[str, Any], ...], Meta(description="dropped points: all keys are equal")] = ()
    only: Annotated[tuple[dict[str, Any], ...], Meta(description="if any, all other points are dropped")] = ()
    statistics: Annotated[Statistics, Meta(description="precision of the numbers")]
    run: Annotated[RunRules, Meta(description="rules for runs")]

    @staticmethod
    def keys_of_points(experiment: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return tables of an experiment that are not read with it: points provide them.

        given : [study], as in the file.
        """
        return ()

    @staticmethod
    def takes_ranges(settings: Any) -> bool:
        """Return whether a range on a grid may lack its steps.

        A sampler chooses values between its ends.
        """
        return False

    @staticmethod
    def checks(study: "Study") -> tuple[Callable[[], Iterable[str]], ...]:
        """Return checks of combinations of keys.

        Each reads only the keys that it needs: it ends at a key that could not be read.
        """
        return ()


class SweepTable(StudyTable, kw_only=True):
    """All points of a design, [study] with kind = "sweep"."""

    @staticmethod
    def checks(study: "Study") -> tuple[Callable[[], Iterable[str]], ...]:
        """Check the metrics: each is a number of summary.json."""
        return (lambda: check_numbers(study.settings.statistics.metrics, f"{study.file}: study.statistics.metrics"),)


class Resolved:
    """A cache of the experiments of points.

    A plan uses experiments that were checked before, a run those that were planned. Another process starts without any.
    """

    def __init__(self):
        self._kept: dict[str, Experiment] = {}

    def __reduce__(self):
        return Resolved, ()

    def of(self, layers: Layers, assignment: Mapping[str, Any]) -> Experiment:
        """Return the experiment of layers, which never change, with an assignment."""
        key = json.dumps(assignment, sort_keys=True, default=repr)
        experiment = self._kept.pop(key, None) or resolve(laid_over(layers, assignment))
        self._kept[key] = experiment            # the most recently used is dropped last
        if len(self._kept) > ALL_CHECKED:
            self._kept.pop(next(iter(self._kept)))
        return experiment


class Study(NamedTuple):
    """A study, read from a file and checked.

    file : the study file. name : of its results. settings : [study]. layers : of the experiment without [study].
    base : that experiment. axes : in the order of the file. seeds : of the replications.
    resolved : cache of the experiments of points.
    of_points : tables of the experiment that points provide: the base lacks them.
    risk : by which runs are slower than predicted; None: they are as predicted.
    """

    file: str
    name: str
    settings: Any
    layers: Layers
    base: Experiment
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    resolved: "Resolved"
    of_points: Mapping[str, Any] | None = None
    risk: Risk | None = None

    def points(self) -> Iterator[Point]:
        """Yield the points, without excluded ones."""
        settings = self.settings
        for point in points_of(settings.design, self.axes, self._listed, self._num_drawn, self.base.seed):
            if is_chosen(point, settings.exclude, settings.only):
                yield point

    def count(self) -> int:
        """Return the number of points of the design, including excluded ones.

        With `has_ranges` there is no such number.
        """
        return count_of(self.settings.design, self.axes, self._listed, self._num_drawn)

    @property
    def has_ranges(self) -> bool:
        """Whether a grid has ranges without steps: its points cannot be enumerated."""
        return self.settings.design not in DRAWN and not all(axis.values for axis in self.axes)

    def experiment_of(self, assignment: Mapping[str, Any], seed: int | None = None) -> Experiment:
        """Return the experiment of a point; its results are not written.

        Parameters
        ----------
        seed : None: the experiment's.

        Raises
        ------
        InputErrors
            All faults of the point, one line each.
        """
        experiment = self.resolved.of(self.layers, assignment) if assignment else self.base
        experiment = experiment if self.risk is None else self.risk.slowed(experiment)
        return changed(experiment, seed=experiment.seed if seed is None else seed, output=NOTHING)

    def plain_base(self) -> dict[str, Any]:
        """Return the experiment as a table of TOML."""
        if isinstance(self.base, Partly):
            raise Unread("base")
        return plain(self.base)

    @property
    def more_inputs(self) -> dict[str, float]:
        """Inputs of the numbers of runs that no experiment has."""
        return {} if self.risk is None else {"first_token_factor": self.risk.first_token_factor}

    @property
    def risk_content(self) -> dict[str, Any]:
        """The risk as the JSON of studies has it; empty: there is none."""
        return {} if self.risk is None else {"model_confidence": self.risk.content()}

    @property
    def is_drawn(self) -> bool:
        """Whether the requests are drawn: runs can be lengthened, and a warm-up cut."""
        return self.base.workload.type == "synthetic"

    @property
    def warmup(self) -> str | dict[str, float]:
        """The warm-up that is cut, in the form of `statistics.of_run.Look`."""
        rule = self.settings.statistics.warmup
        if rule is None:
            return "mser5" if self.is_drawn else "none"
        if isinstance(rule, str):
            return rule
        return {"requests": rule.requests} if rule.requests is not None else {"seconds": rule.seconds}

    @property
    def _listed(self) -> tuple[Point, ...]:
        return self.settings.points if isinstance(self.settings.points, tuple) else ()

    @property
    def _num_drawn(self) -> int:
        return self.settings.points if isinstance(self.settings.points, int) else 0


def read_study(file: str | os.PathLike, overrides: Mapping[str, Any] | Iterable[str] | str | None = None,
               struct: type[StudyTable] = SweepTable, label: str = "overrides") -> Study:
    """Read and check a study file: [study], the experiment, and the axes.

    `check_points` checks the points.

    Parameters
    ----------
    struct : of [study].
    label : name of the overrides in messages.

    Raises
    ------
    InputErrors
        Every fault, one line each.
    """
    file, kind = os.fspath(file), _kind_of(struct)
    layers = read_layers(file, overrides, label)
    given = layers.data.pop("study", None)
    if not isinstance(given, dict):
        raise InputErrors([f"{file}: no study: expected a table [study] with kind = \"{kind}\"; `simulator run` runs "
                           "an experiment"])
    if given.get("kind") != kind and given.get("kind") in registry.STUDIES:
        raise InputErrors([f'{file}: study.kind: "{given["kind"]}"; `simulator {given["kind"]}` does that'])
    of_points = {key: layers.data.pop(key) for key in struct.keys_of_points(layers.data, given) if key in layers.data}
    layers.name_after(file)
    study, faults = _read(file, struct, given, layers, of_points)
    if faults:
        raise InputErrors(dict.fromkeys(faults))
    seeds = study.settings.seeds
    seeds = tuple(range(study.base.seed, study.base.seed + seeds)) if isinstance(seeds, int) else tuple(seeds)
    return study._replace(name=study.base.name, seeds=seeds)


def _read(file: str, struct: type[StudyTable], given: Mapping[str, Any], layers: Layers,
          of_points: Mapping[str, Any]) -> tuple[Study, list[str]]:
    """Return a study and its faults; the parts that could not be read are `Partly` in it."""
    reader = Reader(layers.source_of)
    values = reader.values(struct, anchored(given, layers.source_of), ("study",))
    faults = list(reader.faults)
    settings = Partly(values) if faults else struct(**values)
    study = Study(file, "", settings, layers, Partly(), Partly(), (), Resolved(), of_points)
    try:
        axes, more = _axes(file, settings, struct.takes_ranges(settings))
        faults += more
        study = study if more else study._replace(axes=axes)
    except Unread:
        pass
    try:
        study = study._replace(base=resolve(layers.copy()))
    except InputErrors as errors:
        faults += errors.faults
    faults += faults_of_checks((*struct.checks(study), lambda: _faults_of_risk(study)))
    if not faults and settings.statistics.model_confidence is not None:
        study = study._replace(risk=risk_of(settings.statistics.model_confidence, study.base))
    if faults:                                  # else `check_points` checks them
        faults += faults_of_checks([lambda: _faults_of_points(study, None)])
    return study, faults


def _faults_of_risk(study: Study) -> Iterator[str]:
    """Yield why a study has no confidence over the model."""
    if study.settings.statistics.model_confidence is not None:
        points = study.settings.points if isinstance(study.settings.points, tuple) else ()
        keys = [axis.key for axis in study.axes] + [key for point in points for key in flattened(point)]
        yield from (f"{study.file}: {fault}" for fault in faults_of(study.base, keys))


def check_points(study: Study, limit: int | None = None) -> list[Point]:
    """Return the points; make sure that each is an experiment.

    Raises
    ------
    InputErrors
        There are none or too many; the faults of all points, equal faults once, with their number.
    """
    if faults := list(_faults_of_points(study, limit)):
        raise InputErrors(faults)
    return list(study.points())


def _faults_of_points(study: Study, limit: int | None) -> Iterator[str]:
    if study.has_ranges:
        yield from _faults_of(study, values_alone(study), None)
        return
    count = study.count()
    if count > (limit or MOST_POINTS):
        yield f"{study.file}: {count:,} points, more than {limit or MOST_POINTS:,}; --limit N allows more"
        return
    points = list(study.points())
    if not points:
        yield f"{study.file}: study: no point is left of {count:,}"
        return
    checked = points if len(points) <= ALL_CHECKED else values_alone(study)
    yield from _faults_of(study, checked, len(points) if checked is points else None)
    baseline = study.settings.run.baseline
    if baseline is not None and baseline >= len(points):
        yield f"{study.file}: study.run.baseline: expected a point from 0 to {len(points) - 1}, found {baseline}"


def laid_over(layers: Layers, assignment: Mapping[str, Any], label: str = "study") -> Layers:
    """Return an experiment's layers with an assignment over them.

    Raises
    ------
    InputErrors
        An unknown key, or the number of an item that a list does not have.
    """
    made = layers.copy()
    source = Source(label, layers.main.folder)
    plain = {key: value for key, value in assignment.items() if not _has_number(key)}
    add_overrides(made, plain, label)
    for key in assignment.keys() - plain.keys():
        _set_item(made, key, assignment[key], source)
    return made


def _has_number(key: str) -> bool:
    return any(part.isdecimal() for part in key.split("."))


def _set_item(layers: Layers, key: str, value: Any, source: Source) -> None:
    """Set a key below the number of a list's item: "pools.0.replicas"."""
    *path, last = key.split(".")
    place: Any = layers.data
    for depth, part in enumerate(path):
        if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, dict) and part.isdecimal() and part not in place:
            raise InputErrors([f"{source.label}: {key}: the file gives no list {'.'.join(path[:depth])} with items "
                               "that could vary: write it, also if it is the default"])
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            found = f"a list of {len(place)}" if isinstance(place, list) else show(place)
            raise InputErrors([f"{source.label}: {key}: {'.'.join(path[:depth])} is {found}"])
    if isinstance(place, list) and last.isdecimal() and int(last) < len(place):
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise InputErrors([f"{source.label}: {key}: {'.'.join(path)} has no item {last}"])


def _axes(file: str, settings: StudyTable, takes_ranges: bool) -> tuple[tuple[Axis, ...], list[str]]:
    """Return the axes, and their faults.

    takes_ranges : whether a range on a grid may lack its steps.
    """
    draws, axes, faults = settings.design in DRAWN, [], []
    for key, given in settings.axes.items():
        axis = axis_of(key, given, draws, takes_ranges)
        if key.split(".")[0] in UNMOVED:
            axis = "seed and names are no axes; [study] seeds gives the seeds"
        if isinstance(axis, str):
            faults.append(f'{file}: study.axes."{key}": {axis}')
        else:
            axes.append(axis)
    lengths = {axis.key: len(axis.values) for axis in axes}
    if settings.design == "zip" and len(set(lengths.values())) > 1:
        shown = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        faults.append(f'{file}: study.axes: expected as many values of each with design = "zip"; {shown}')
    is_list, has_list = settings.design == "list", isinstance(settings.points, tuple) and bool(settings.points)
    if is_list and (not has_list or settings.axes):
        faults.append(f'{file}: study.points: design = "list" takes tables [[study.points]], and no axes')
    if draws and not isinstance(settings.points, int):
        faults.append(f'{file}: study.points: expected a number of points with design = "{settings.design}"')
    if not draws and not is_list and settings.points != ():
        faults.append(f'{file}: study.points: expected none with design = "{settings.design}"')
    if settings.design == "sobol" and isinstance(settings.points, int) and settings.points & (settings.points - 1):
        faults.append(f'{file}: study.points: expected a power of two with design = "sobol", found {settings.points}')
    if not is_list and not axes and not faults and settings.kind == "sweep":
        faults.append(f"{file}: study.axes: missing; expected keys of the experiment and their values")
    return tuple(axes), faults


def values_alone(study: Study) -> list[Point]:
    """Return a point for each value of each axis, the other axes at their first."""
    first = {axis.key: axis.at(0.0) for axis in study.axes}
    return [first | {axis.key: value} for axis in study.axes
            for value in (axis.values or (axis.at(0.0), axis.at(1.0)))] or list(study.points())[:ALL_CHECKED]


def _faults_of(study: Study, points: list[Point], count: int | None) -> list[str]:
    """Return the faults of points; equal faults of several points once."""
    numbers, first = Counter(), {}
    for number, point in enumerate(points):
        try:
            study.experiment_of(point)
        except InputErrors as errors:
            for fault in errors.faults:
                fault = fault.removeprefix(f"{study.file}: ").removeprefix("study: ")
                numbers[fault] += 1
                first.setdefault(fault, number)
    where = {fault: f"value {words_of(points[first[fault]])}" if count is None else f"point {first[fault]} of {count}"
             for fault in numbers}
    return [f"{study.file}: {where[fault]}: {fault}" + (f" (and {number - 1} more)" if number > 1 else "")
            for fault, number in numbers.items()]


def words_of(point: Point) -> str:
    """Return a point as text: "engine.max_num_seqs = 8, model.name = ..."."""
    return ", ".join(f"{key} = {show(value)}" for key, value in flattened(point).items())


def _kind_of(struct: type[StudyTable]) -> str:
    return struct.__name__.removesuffix("Table").lower()
