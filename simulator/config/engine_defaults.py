"""Options of servers that an experiment leaves out, as the engine of each pool sets them on its card.

The rules are the schedulers' (`Scheduler.defaults`), with those by card in simulator/domain/server_defaults.
"""
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from simulator import registry
from simulator.config.models import model_of
from simulator.domain.facts import load_accelerator
from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.said import Machine
from simulator.errors import InputErrors

Path = tuple[str | int, ...]


def fill_in_engines(sections: Mapping[str, Any], missing: object) -> tuple[dict[Path, str], dict[Path, int]]:
    """Fill in [engine] of an experiment and of its pools.

    Return the rule of each filled key, by its path, and the values of keys that stay those of the checkpoint.

    sections : the fields of an Experiment; `missing` marks a field that could not be read.
    """
    pools = () if sections["pools"] is missing else sections["pools"]
    places = [((), sections)] + [(("pools", number), {name: getattr(pool, name) for name in pool.__struct_fields__})
                                 for number, pool in enumerate(pools)]
    rules, of_checkpoint = {}, {}
    for path, place in places:
        if place["engine"] is missing:
            continue
        machine = _machine_of(place, missing)
        rules |= {(*path, "engine", key): why for key, why in _fill_in(place["engine"], machine).items()}
        if place["engine"].max_model_len is None and machine.max_model_len is not None:
            of_checkpoint[(*path, "engine", "max_model_len")] = machine.max_model_len
    return rules, of_checkpoint


def _fill_in(engine, machine: Machine) -> dict[str, str]:
    filled, own = {}, engine.parameters
    values = {}
    for key, default in registry.load("scheduler", engine.scheduler).defaults(engine, machine).items():
        is_own = key in own.__struct_fields__
        if default.value is None or getattr(own if is_own else engine, key) is not None:
            continue
        filled[key] = default.why
        if is_own:
            values[key] = default.value
        else:
            msgspec.structs.force_setattr(engine, key, default.value)
    if values:
        msgspec.structs.force_setattr(engine, "parameters", msgspec.structs.replace(own, **values))
    return filled


def _machine_of(place: Mapping[str, Any], missing: object) -> Machine:
    """Return the facts of a pool; those that cannot be read are reported by the checks that need them."""
    known = {name: None if place[name] is missing else place[name] for name in ("model", "hardware", "topology")}
    card = model = None
    with suppress(InputErrors, OSError, ValueError):
        card = known["hardware"] and as_card(load_accelerator(known["hardware"].name))
    with suppress(InputErrors, OSError, ValueError):
        model = known["model"] and model_of(known["model"])
    length = place["engine"].max_model_len or (model.max_position_embeddings if model is not None else None)
    return Machine(card, model, length, known["topology"], place.get("role", "both"),
                   known["model"].kv_cache_dtype if known["model"] else "auto")
