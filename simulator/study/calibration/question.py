"""A calibration, read from its file and checked."""
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator import registry
from simulator.config.experiment import Experiment, Output
from simulator.config.layers import Layers, read_layers
from simulator.config.load import experiment_layers, resolve
from simulator.config.reader import MISSING, Reader
from simulator.errors import InputErrors, did_you_mean
from simulator.study.calibration.calibrate_table import AUTO, REQUESTS, STEPS, CalibrateTable, FitKey, MeasuredRow
from simulator.study.calibration.data import (
    Requests,
    Steps,
    doubts,
    files_of,
    hold_out,
    read_requests,
    read_steps_of,
)
from simulator.study.calibration.fit_keys import check_bounds, read_keys
from simulator.study.calibration.steps import LINEAR, PRICES, is_fitted_to_steps
from simulator.study.measured.observed import PLANNED
from simulator.study.sweep.partly import Partly, faults_of_checks
from simulator.study.sweep.study_file import laid_over

NOT_WRITTEN = Output(iterations=False)
ALL_COMPARED = "all of `measured` is held out, and nothing is fitted: it is compared as one, as if none of it were."


class DataSet(NamedTuple):
    """A set of measurements, and the experiment of its server.

    name : of it in tables. is_held : held out of the fit. experiment : its file; empty: the study's own.
    own : layers of the experiment. layers : the experiment with its workload replaced by the trace of the sent
    requests.
    requests, steps : None: it has none.
    """

    name: str
    is_held: bool
    experiment: str
    own: Layers
    layers: Layers
    requests: Requests | None
    steps: Steps | None

    def experiment_of(self, assignment: Mapping[str, Any]) -> Experiment:
        """Return its experiment with keys laid over it; nothing is written.

        Raises
        ------
        InputErrors
            All faults of the experiment, one line each.
        """
        return replace(resolve(laid_over(self.layers, assignment, "study.fit")), output=NOT_WRITTEN)


class Question(NamedTuple):
    """A checked calibration.

    file : the study file. name : of the results. settings : [study]. layers : of the file, without [study].
    fit : key -> its bounds, in the order of the file. sets : measurements. level : STEPS or REQUESTS.
    seed : of random draws. notes : warnings about the data, a sentence each.
    """

    file: str
    name: str
    settings: CalibrateTable
    layers: Layers
    fit: dict[str, FitKey]
    sets: tuple[DataSet, ...]
    level: str
    seed: int
    notes: tuple[str, ...]

    def by_steps(self) -> dict[str, FitKey]:
        """Return the keys that are fitted to iterations."""
        return {key: each for key, each in self.fit.items() if self.level == STEPS and is_fitted_to_steps(key)}

    def by_requests(self) -> dict[str, FitKey]:
        """Return the keys that must be fitted to requests."""
        return {key: each for key, each in self.fit.items() if self.level != STEPS or not is_fitted_to_steps(key)}


def read_question(file: str | os.PathLike, overrides: Iterable[str] = (), is_fitted: bool = True,
                  is_forced: bool = False) -> Question:
    """Read and check a calibration: the file, the experiments and the data.

    Parameters
    ----------
    is_fitted : False: data are only compared. is_forced : doubts about data are notes, not faults.

    Raises
    ------
    InputErrors
        All faults, one line each.
    """
    file, overrides = os.fspath(file), tuple(overrides)
    layers = read_layers(file, overrides, "--set")
    faults: list[str] = []
    given, fit = _settings(file, layers, is_fitted, faults)
    layers.name_after(file)
    if faults:
        faults += faults_of_checks([lambda: _faults_of_sets(file, layers, given, overrides)])
    _raise(faults)
    settings = given if is_fitted else _compared(given)
    sets = _sets(file, layers, settings, overrides, faults)
    _raise(faults)
    experiments = check_bounds(file, fit, sets, faults)
    _raise(faults)
    level = _level(file, settings, sets, experiments, fit, faults)
    doubtful = [doubt for each in sets if each.requests is not None for doubt in doubts(each.requests)]
    notes = [ALL_COMPARED] * (len(_held(settings)) < len(_held(given))) + doubtful
    question = Question(file, layers.data["name"], settings, layers, fit, tuple(sets), level,
                        experiments[0].seed, tuple(notes))
    faults += _lacking(question)
    if not is_forced and (level == REQUESTS or question.by_requests()):
        faults += [f"{doubt}; --force takes it all the same" for doubt in doubtful]
    _raise(faults)
    return question


def _raise(faults: list[str]) -> None:
    if faults:
        raise InputErrors(dict.fromkeys(faults))


def _settings(file: str, layers: Layers, is_fitted: bool, faults: list[str]) -> tuple[Any, dict[str, FitKey]]:
    """Return [study], which is taken out of the layers, and the keys that are fitted.

    Their faults are added to `faults`.
    """
    given = layers.data.pop("study", None)
    if not isinstance(given, dict):
        raise InputErrors([f'{file}: no study: expected a table [study] with kind = "calibrate"; `simulator run` runs '
                           "an experiment"])
    kind = given.get("kind")
    if kind != "calibrate" and kind in registry.STUDIES:
        raise InputErrors([f'{file}: study.kind: "{kind}"; `simulator {kind}` does that'])
    reader = Reader(layers.source_of)
    values = reader.values(CalibrateTable, given, ("study",))
    if values["measured"] is not MISSING:
        values["measured"] = tuple(MeasuredRow(path=each) if isinstance(each, str) else each
                                   for each in values["measured"])
    faults += reader.faults
    settings = Partly(values) if faults else CalibrateTable(**values)
    faults += faults_of_checks([lambda: _faults_of_held(file, settings, is_fitted)])
    fit: dict[str, FitKey] = {}
    if is_fitted:
        faults += faults_of_checks([lambda: _faults_of_fit(file, layers, settings, fit)])
    return settings, fit


def _faults_of_held(file: str, settings: CalibrateTable, is_fitted: bool) -> Iterator[str]:
    paths = _paths(settings)
    yield from (f"{file}: study.held_out: {path}: not one of `measured`{did_you_mean(path, paths)}"
                for path in settings.held_out if path not in paths)
    held = _held(settings)
    if is_fitted and len(held) == len(settings.measured):
        yield f"{file}: study.held_out: all of `measured` is held out: nothing is left to fit to"
    if settings.fraction is not None and held:
        yield f"{file}: study.fraction: expected none where whole data sets are held out"


def _faults_of_fit(file: str, layers: Layers, settings: CalibrateTable, found: dict[str, FitKey]) -> Iterator[str]:
    """Yield the faults of the keys to fit, which are put into `found`."""
    faults: list[str] = []
    found |= read_keys(file, layers, settings.fit, faults)
    yield from faults
    if not found and not faults and not settings.residual:
        yield (f"{file}: study.fit: missing; expected keys of [latency] with {{min, max}}, or [study.residual]; "
               "--no-fit only compares")


def _held(settings: CalibrateTable) -> list[MeasuredRow]:
    return [row for row in settings.measured if row.held_out or row.path in settings.held_out]


def _compared(settings: CalibrateTable) -> CalibrateTable:
    """Return [study] of a comparison: if all data are held out, none is: they are compared together."""
    settings = replace(settings, residual=None)
    if len(_held(settings)) < len(settings.measured):
        return settings
    rows = tuple(replace(row, held_out=False) for row in settings.measured)
    return replace(settings, measured=rows, held_out=())


def _paths(settings: CalibrateTable) -> list[str]:
    return [row.path for row in settings.measured]


def _sets(file: str, layers: Layers, settings: CalibrateTable, overrides: tuple[str, ...],
          faults: list[str]) -> list[DataSet]:
    """Return the data sets; collect their faults."""
    found, names = [], _names(settings)
    for row, name in zip(settings.measured, names, strict=True):
        try:
            found.append(_set(row, name, layers, settings, overrides))
        except InputErrors as errors:
            faults += errors.faults
    return found


def _faults_of_sets(file: str, layers: Layers, settings: CalibrateTable, overrides: tuple[str, ...]) -> list[str]:
    faults: list[str] = []
    _sets(file, layers, settings, overrides, faults)
    return faults


def _names(settings: CalibrateTable) -> list[str]:
    """Return names for data sets: that of the folder or file, the whole path where two are equal."""
    paths = [Path(row.path) for row in settings.measured]
    short = [path.name if path.is_dir() or path.name not in ("observed.csv", "steps.csv") else path.parent.name
             for path in paths]
    return [name.removesuffix(".csv") if short.count(name) == 1 else str(path) for name, path in zip(short, paths)]


def _set(row: MeasuredRow, name: str, layers: Layers, settings: CalibrateTable, overrides: tuple[str, ...]) -> DataSet:
    is_held = row.held_out or row.path in settings.held_out
    requests_file, steps_file = files_of(row.path)
    own = layers.copy() if row.experiment is None else experiment_layers(row.experiment, overrides, "--set")
    replayed = own.copy()
    if requests_file is not None:
        replayed.data["workload"] = _workload(requests_file)
    else:           # nothing of it is simulated, but a data set needs an experiment
        replayed.data.setdefault("workload", _workload(steps_file))
    requests = requests_file and read_requests(requests_file, is_held)
    steps = steps_file and read_steps_of(steps_file, is_held)
    if settings.fraction is not None:
        requests, steps = hold_out(requests, steps, settings.fraction)
    return DataSet(name, is_held, row.experiment or "", own, replayed, requests, steps)


def _workload(file: Path) -> dict[str, str]:
    """Return the workload that repeats the sent requests; trace.csv beside it has their shared prompts."""
    planned = file.with_name(PLANNED)
    prompts = {"prompts": str(planned.absolute())} if planned.is_file() else {}
    return {"type": "trace", "format": "observed", "path": str(file.absolute())} | prompts


def _level(file: str, settings: CalibrateTable, sets: list[DataSet], experiments: list[Experiment],
           fit: Mapping[str, FitKey], faults: list[str]) -> str:
    """Return the level of the fit; collect why it cannot be the one in the file."""
    needs_linear = settings.residual is None or any(key in PRICES for key in fit)
    others = [f'{each.name}: backend "{one.latency.backend}"' for each, one in zip(sets, experiments)
              if not each.is_held and one.latency.backend != LINEAR and needs_linear]
    if settings.residual is not None:
        faults += [f"{file}: study.residual: the experiment of {each.name} has a residual, latency.residual = "
                   f'"{one.latency.residual}": expected none' for each, one in zip(sets, experiments)
                   if one.latency.residual is not None]
    others += [f"{each.name}: [[pools]]" for each, one in zip(sets, experiments) if not each.is_held and one.pools]
    blind = [each.name for each in sets if not each.is_held and each.steps is None]
    if settings.level == STEPS:
        faults += [f'{file}: study.level: "steps" expects backend = "linear" and one kind of replica, whose prices '
                   f'have a closed form, found {other}; "requests" fits any backend, and [study.residual] puts '
                   "iterations on top of any" for other in others]
        faults += [f'{file}: study.level: "steps" expects steps.csv, which {name} has not' for name in blind]
        if fit and not any(map(is_fitted_to_steps, fit)):
            faults.append(f'{file}: study.level: "steps": iterations tell none of {", ".join(fit)}')
        return STEPS
    is_identified = not fit or settings.residual is not None or any(map(is_fitted_to_steps, fit))
    if settings.residual is not None:
        faults += [f"{file}: study.residual: expected steps.csv, which {name} has not" for name in blind]
        if settings.level == REQUESTS:
            faults.append(f'{file}: study.residual: expected level "steps" or "auto", since it is fitted to iterations')
    return STEPS if settings.level == AUTO and not others and not blind and is_identified else REQUESTS


def _lacking(question: Question) -> list[str]:
    """Return faults for data sets without the requests that keys need."""
    if question.level == STEPS and not question.by_requests():
        return []
    keys = ", ".join(question.by_requests()) or "requests"
    return [f"{question.file}: study.measured: {each.name} has no observed.csv, which {keys} would be told by"
            for each in question.sets if each.requests is None and not each.is_held]
