"""The keys that are fitted, [study.fit]: numbers of [latency], each with bounds."""
import math
from collections.abc import Iterable, Mapping
from typing import Any

from simulator.config.experiment import Experiment
from simulator.config.keys import Key, keys, named
from simulator.config.layers import Layers
from simulator.config.load import plain
from simulator.config.reader import MISSING, Reader
from simulator.errors import InputErrors, did_you_mean
from simulator.study.calibration.calibrate_table import FitKey


def read_keys(file: str, layers: Layers, given: Mapping[str, Any], faults: list[str]) -> dict[str, FitKey]:
    """Return the keys and their bounds; add their faults to `faults`."""
    reader, found = Reader(layers.source_of), {}
    for key, table in _flattened(given).items():
        place = f'{file}: study.fit."{key}"'
        if not _is_known(key):
            faults.append(f"{place}: no key of [latency]{did_you_mean(key, _names())}")
            continue
        if not isinstance(table, Mapping):
            faults.append(f"{place}: expected {{min, max}}, found {table!r}")
            continue
        bounds = reader.table(FitKey, dict(table), ("study", "fit", key))
        if bounds is not MISSING:
            faults += [f"{place}: {fault}" for fault in _faults(bounds)]
            found[key] = bounds
    faults += reader.faults
    return found


def check_bounds(file: str, fit: Mapping[str, FitKey], sets: Iterable, faults: list[str]) -> list[Experiment]:
    """Return the experiments of data sets.

    Their faults, and those of a key at either bound, are added to `faults`.
    """
    experiments = []
    for each in sets:
        try:
            experiments.append(each.experiment_of({}))
        except InputErrors as errors:
            faults += errors.faults
            continue
        for key, bounds in fit.items():
            for end in (bounds.min, bounds.max):
                try:
                    value = value_of(each.experiment_of({key: end}), key)
                except InputErrors as errors:
                    faults += [f"{file}: {fault}" for fault in errors.faults]
                    continue
                if isinstance(value, bool) or not isinstance(value, float):
                    faults.append(f'{file}: study.fit."{key}": expected a key that is a number, found one that is '
                                  f"{value!r}")
    return experiments


def value_of(experiment: Experiment, key: str) -> Any:
    """Return an experiment's value of a key; None: it has none."""
    value: Any = plain(experiment)
    for part in key.split("."):
        if isinstance(value, list):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _flattened(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return keys by dotted name, quoted or written as tables: the innermost holds min and max."""
    found: dict[str, Any] = {}
    for key, table in given.items():
        is_inner = isinstance(table, Mapping) and any(isinstance(each, Mapping) for each in table.values())
        found |= _flattened(table, f"{prefix}{key}.") if is_inner else {f"{prefix}{key}": table}
    return found


def _is_known(key: str) -> bool:
    return any(_is_of_latency(each.name) for each in named(key) if _is_whole(key, each))


def _is_whole(key: str, found: Key) -> bool:
    """Return whether a key is written from the top of the file, and not by its end alone."""
    return found.name.count(".") == sum(not part.isdecimal() for part in key.split(".")) - 1


def _is_of_latency(name: str) -> bool:
    return name.startswith(("latency.", "pools.latency."))


def _names() -> set[str]:
    return {key.name for key in keys() if key.name.startswith("latency.")}


def _faults(bounds: FitKey):
    """Yield contradictions between bounds."""
    if not (math.isfinite(bounds.min) and math.isfinite(bounds.max) and bounds.min < bounds.max):
        yield f"expected min below max, found {bounds.min:g} and {bounds.max:g}"
    if (bounds.prior is None) != (bounds.prior_sd is None):
        yield "expected prior and prior_sd, or neither"
    elif bounds.prior is not None and not bounds.min <= bounds.prior <= bounds.max:
        yield f"prior: expected a value from min to max, found {bounds.prior:g}"
