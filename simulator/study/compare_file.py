"""A comparison file: a base experiment, and the changes of each variant.

    base = "quickstart.toml"

    [[variants]]
    name = "linear"
    latency = {backend = "linear", base_us = 6000.0}

A variant is laid over the base as a file that extends it would be; its name is that of its experiment. It cannot
change the keys that requests are drawn from, so that all variants serve equal requests. The policies' knowledge of
output lengths may differ: `workload = {output_knowledge = {predictor = "exact"}}`.
"""
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from simulator.config.experiment import Experiment
from simulator.config.layers import Layers, Source, read_layers, read_toml
from simulator.config.load import resolve
from simulator.config.words import show
from simulator.errors import InputErrors, did_you_mean

KEYS = ("base", "variants")
# Keys of an experiment that only the base may have: they define the requests, and the place of results.
SHARED = ("extends", "output", "seed")
OWN = "output_knowledge"        # the only key of [workload] that a variant may have


class Comparison(msgspec.Struct, frozen=True):
    """Experiments with equal requests.

    file : the comparison file.
    experiments : name of the variant -> its experiment, in the order of the file.
    """

    file: str
    experiments: dict[str, Experiment]

    def place(self, name: str) -> str:
        """Return the name of a variant in messages."""
        return _place(self.file, name)


def read_comparison(file: str | os.PathLike, overrides: Mapping[str, Any] | Iterable[str] | str | None = None,
                    label: str = "overrides") -> Comparison:
    """Read and check a comparison file and all its experiments.

    Parameters
    ----------
    overrides : values that win over the base experiment, as in `simulator.run`; variants win over them.
    label : name of the overrides in messages.

    Raises
    ------
    InputErrors
        All faults of the file and of its variants, one line each.
    """
    file = os.fspath(file)
    data = read_toml(file)
    if not any(key in data for key in KEYS):
        raise InputErrors([f"{file}: no comparison: expected base, an experiment file, and tables [[variants]]; "
                           "`simulator run` runs an experiment"])
    faults = [f"{file}: {key}: unknown key{did_you_mean(key, KEYS)}" for key in data if key not in KEYS]
    base, variants = data.get("base"), data.get("variants")
    if not isinstance(base, str) or not base or "\0" in base:
        faults.append(f"{file}: base: expected the path of an experiment file")
    if not isinstance(variants, list) or not variants or not all(isinstance(each, dict) for each in variants):
        faults.append(f"{file}: variants: expected tables [[variants]], each with a name")
    if faults:
        raise InputErrors(faults)
    base = os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(base)))
    read_layers(base, overrides, label)     # unreadable files are reported once
    faults += _name_faults(file, variants)
    experiments = [_variant(file, variant, read_layers(base, overrides, label), faults)
                   for variant in variants if isinstance(variant.get("name"), str)]
    if faults:
        raise InputErrors(dict.fromkeys(faults))    # faults of the base are found with every variant
    return Comparison(file, {experiment.name: experiment for experiment in experiments})


def _name_faults(file: str, variants: list[dict]) -> Iterator[str]:
    seen = set()        # folders have these names, and some file systems ignore case
    for number, name in enumerate(variant.get("name") for variant in variants):
        if not isinstance(name, str):
            found = "missing; expected a text" if name is None else f"expected a text, found {show(name)}"
            yield f"{file}: variants[{number}].name: {found}"
        elif name.casefold() in seen:
            yield f"{file}: variants[{number}].name: {show(name)} is the name of an earlier variant"
        else:
            seen.add(name.casefold())


def _variant(file: str, variant: dict, layers: Layers, faults: list[str]) -> Experiment | None:
    place = _place(file, variant["name"])
    shared, own = [key for key in SHARED if key in variant], dict(variant)
    workload = variant.get("workload", {})
    if isinstance(workload, dict):
        shared += [f"workload.{key}" for key in workload if key != OWN]
        own["workload"] = {key: value for key, value in workload.items() if key == OWN}
    else:
        shared.append("workload")
    faults += [f"{place}: {key}: is the same for all variants; the base says it" for key in shared]
    own = {key: value for key, value in own.items() if key not in shared and value != {}}
    layers.main = Source(place, os.path.dirname(file))
    layers.add(own, layers.main)
    try:
        return resolve(layers)
    except InputErrors as errors:
        faults += errors.faults
        return None


def _place(file: str, name: str) -> str:
    return f"{file}: variant {name}"
