"""Rules for the keys of [study] that a sampler reads: search = "optuna"."""
from collections.abc import Iterator
from typing import Any

from simulator.study.sweep.axes import Axis
from simulator.study.sweep.study_file import Study

OPTUNA, AUTO = "optuna", "auto"
CMAES = "cmaes"
LEAST_SEEDS = 3                 # of a race: a difference over two seeds first, and one seed more to save
OF_SAMPLERS = {"sampler": None, "at_once": 16, "patience": None, "racing": False}


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_ordered(axis: Axis) -> bool:
    """Return whether the values of an axis are numbers in their order, or a range."""
    values = axis.values
    if not all(map(is_number, values)):
        return False
    return list(values) in (sorted(values), sorted(values, reverse=True))


def is_sampled(study: Study) -> bool:
    """Return whether a sampler chooses the candidates, by the study's keys."""
    return study.settings.search == OPTUNA or (study.settings.search == AUTO and study.has_ranges)


def faults_of_sampling(study: Study, place: str) -> Iterator[str]:
    """Yield the faults of a sampler's keys, and of held_out."""
    given, has_sampler = study.settings, is_sampled(study)
    if not has_sampler:
        for key, idle in OF_SAMPLERS.items():
            if getattr(given, key) != idle:
                yield f'{place}.{key}: expected none with search = "{given.search}": it is of search = "optuna"'
    elif given.design != "grid":
        yield f'{place}.design: expected "grid" with search = "optuna", which chooses values itself'
    elif given.exclude or given.only:
        yield f'{place}.exclude: expected none, nor only, with search = "optuna"'
    if len(given.objectives) > 1:
        for key in ("patience", "racing"):
            if getattr(given, key):
                yield f"{place}.{key}: takes one objective, of which one value is better than another"
    if given.held_out and given.load != "offered":
        yield f'{place}.held_out: takes load = "offered", found "{given.load}"'
    yield from _faults_of_race(study, place)
    if has_sampler and given.sampler == CMAES:
        yield from _faults_of_cmaes(study, place)


def _faults_of_race(study: Study, place: str) -> Iterator[str]:
    given = study.settings
    if not given.racing:
        return
    if given.load == "capacity":
        yield f'{place}.racing: expected false with load = "capacity", which chooses its own seeds'
        return
    count = given.seeds if isinstance(given.seeds, int) else len(given.seeds)
    if count < LEAST_SEEDS:
        yield f"{place}.seeds: expected at least {LEAST_SEEDS} with racing, found {count}"


def _faults_of_cmaes(study: Study, place: str) -> Iterator[str]:
    given = study.settings
    if len(given.objectives) > 1:
        yield f'{place}.sampler: "cmaes" takes one objective, found {len(given.objectives)}; "nsga2" takes several'
    if given.slo:
        yield f'{place}.slo: expected none with sampler = "cmaes", which knows no bounds; "tpe" does'
    if len(given.layouts or ()) > 1:
        yield f'{place}.layouts: expected one with sampler = "cmaes", which takes numbers alone'
    for axis in study.axes:
        if not is_ordered(axis):
            yield (f'{place}.axes."{axis.key}": expected numbers in their order with sampler = "cmaes"; "tpe" takes '
                   "names, too")
    if sum(len(axis.values) != 1 for axis in study.axes) < 2:
        yield f'{place}.axes: expected two at least that vary with sampler = "cmaes"; "tpe" takes one'
