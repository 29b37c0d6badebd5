"""From an experiment file to an `Experiment`, and back to text."""
import os
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import msgspec
import tomli_w
from msgspec.structs import replace

from simulator import registry
from simulator.config.checks import check_all
from simulator.config.engine_defaults import fill_in_engines
from simulator.config.experiment import Experiment, Latency
from simulator.config.fields import table_of
from simulator.config.layers import Layers, read_layers
from simulator.config.nodes import with_node
from simulator.config.origins import Origins, given_in, with_comments
from simulator.config.parts import parts_in
from simulator.config.pools import overlay
from simulator.config.reader import MISSING, Reader
from simulator.config.routing_presets import unfold
from simulator.config.scorers import fill_in_scorers
from simulator.errors import InputErrors

COMPARE, SWEEP = "compare", "sweep"


class NoExperiment(InputErrors):
    """The file describes a study over many runs, not one experiment.

    kind : the command that runs the study.
    """

    def __init__(self, faults: Iterable[str], kind: str):
        super().__init__(faults)
        self.kind = kind

    def __reduce__(self):
        return NoExperiment, (self.faults, self.kind)


def load_experiment(file: str | os.PathLike, overrides: Mapping[str, Any] | Iterable[str] | str | None = None,
                    label: str = "overrides") -> Experiment:
    """Read and check an experiment file.

    Parameters
    ----------
    file : the TOML file.
    overrides : values that win over the file: `{"engine.max_num_seqs": 64}`, or texts `engine.max_num_seqs=64`.
    label : name of the overrides in messages.

    Raises
    ------
    InputErrors
        Every fault of the file, one line each.
    """
    return resolve(experiment_layers(file, overrides, label))


def experiment_layers(file: str | os.PathLike, overrides: Mapping[str, Any] | Iterable[str] | str | None = None,
                      label: str = "overrides") -> Layers:
    """Read an experiment file as one table, before anything in it is checked.

    Parameters
    ----------
    As in `load_experiment`.

    Raises
    ------
    InputErrors
        A file that cannot be read, or is no experiment.
    """
    layers = read_layers(file, overrides, label)
    if (kind := kind_of(layers)) is not None:
        noun = "a comparison" if kind == COMPARE else "a study"
        raise NoExperiment([f"{os.fspath(file)}: {noun}, not an experiment; `simulator {kind}` runs it"], kind)
    layers.name_after(file)
    return layers


def kind_of(layers: Layers) -> str | None:
    """Return the command that runs the study of a file; None: an experiment.

    A table [study] without a kind is taken as a sweep: the reader of sweeps reports the fault.
    """
    if "variants" in layers.data:
        return COMPARE
    if "study" not in layers.data:
        return None
    kind = layers.data["study"].get("kind") if isinstance(layers.data["study"], dict) else None
    return kind if kind in registry.STUDIES else SWEEP


def resolve(layers: Layers) -> Experiment:
    """Return the experiment that a merged table describes.

    Raises
    ------
    InputErrors
        Every fault of the table, one line each.
    """
    given = given_in(layers)
    of_files = [fault for part in parts_in(layers.data) for fault in part.unfold(layers)]
    of_files += unfold(layers)
    overlay(layers.data, layers.folders)
    reader = Reader(layers.source_of)
    sections = reader.values(Experiment, layers.data)
    rules, of_checkpoint = fill_in_engines(sections, MISSING, given)
    check_all(sections, MISSING, reader.fault)
    if faults := of_files + reader.faults:
        raise InputErrors(faults)
    experiment = Experiment(**sections)
    for number, place in enumerate(experiment.pools or (experiment,)):
        topology, fault = with_node(place)
        if fault is not None:
            reader.fault((*(("pools", number) if experiment.pools else ()), "topology", "node"), fault)
        msgspec.structs.force_setattr(place, "topology", topology)
    for place in (experiment, *experiment.pools):
        msgspec.structs.force_setattr(place, "latency", _with_host(place))
    if reader.faults:
        raise InputErrors(reader.faults)
    fill_in_scorers(experiment.cluster)
    experiment.__dict__["origins"] = Origins(given, rules, of_checkpoint)
    return experiment


def _with_host(place) -> Latency:
    """Return [latency] of an experiment or a pool, with output_token_accumulates filled in."""
    latency, host = place.latency, place.latency.host
    if host.output_token_accumulates is not None:
        return latency
    is_fitted = host.output_token_us == 0 and registry.load("latency", latency.backend).delays_add_up
    adds_up = is_fitted or place.engine.scheduler == "blis"
    return replace(latency, host=replace(host, output_token_accumulates=adds_up))


def resolved_toml(experiment: Experiment) -> str:
    """Write an experiment as TOML with every default filled in.

    Reading the text gives an equal experiment. A key without a value (no SLO, no pools) is omitted.
    """
    return tomli_w.dumps(plain(experiment))


def commented_toml(experiment: Experiment) -> str:
    """Write an experiment as `resolved_toml` does, with the source of each value.

    An experiment that was not read from a file has no sources, and no comments.
    """
    text, origins = resolved_toml(experiment), experiment.origins
    return text if origins is None else with_comments(text, origins.of, origins.of_checkpoint)


def plain_as_given(experiment: Experiment) -> dict[str, Any]:
    """Return the TOML table of an experiment, without values that engines set.

    Another card or model laid over it brings its own.
    """
    table = plain(experiment)
    for path in experiment.origins.rules if experiment.origins is not None else ():
        *outer, key = path
        inner = reduce(lambda place, name: place[name], outer, table)
        inner.pop(key, None)
    return table


def changed(experiment: Experiment, **changes: Any) -> Experiment:
    """Return an experiment with other fields, and the sources of the rest."""
    made = replace(experiment, **changes)
    if experiment.origins is not None:
        made.__dict__["origins"] = experiment.origins
    return made


def plain(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the TOML table of a Struct, including the keys of a chosen class."""
    table = table_of(type(struct))
    values = {field.name: getattr(struct, field.name) for field in table.fields}
    unused = {field.name for field in table.fields if field.default == () == values[field.name]}
    written = {name: plain_value(value) for name, value in values.items() if value is not None and name not in unused}
    return written | plain(getattr(struct, table.choice)) if table.choice else written


def plain_value(value: Any) -> Any:
    """Return a value as a TOML or JSON type: Structs as tables, tuples as lists."""
    if isinstance(value, msgspec.Struct):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [plain_value(each) for each in value]
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    return value
