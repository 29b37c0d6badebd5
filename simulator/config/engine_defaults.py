"""Options of servers that an experiment leaves out, as the engine of each pool sets them on its card.

The rules are the schedulers' (`Scheduler.defaults`), with those by card in simulator/domain/server_defaults.
"""
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from simulator import registry
from simulator.config.models import model_of
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.said import Machine
from simulator.errors import InputErrors

Path = tuple[str | int, ...]
WHOLE_TEXT = ("enable_prefix_caching", "enable_chunked_prefill")    # not of models that compute a text whole


def fill_in_engines(sections: Mapping[str, Any], missing: object,
                    given: Collection[Path]) -> tuple[dict[Path, str], dict[Path, int]]:
    """Fill in [engine] of an experiment and of its pools.

    Return the rule of each filled key, by its path, and the values of keys that stay those of the checkpoint.

    sections : the fields of an Experiment; `missing` marks a field that could not be read. given : keys that the
    experiment gives.
    """
    pools = () if sections["pools"] is missing else sections["pools"]
    places = [((), sections)] + [(("pools", number), {name: getattr(pool, name) for name in pool.__struct_fields__})
                                 for number, pool in enumerate(pools)]
    rules, of_checkpoint = {}, {}
    for path, place in places:
        if place["engine"] is missing:
            continue
        machine = _machine_of(place, missing)
        rules |= {(*path, "engine", key): why for key, why in _constants(place["engine"].parameters).items()
                  if not {(*path, "engine", key), ("engine", key)} & set(given)}
        asked = {key for key in WHOLE_TEXT if {(*path, "engine", key), ("engine", key)} & set(given)}
        rules |= {(*path, "engine", key): why for key, why in _whole_text(place["engine"], machine, asked).items()}
        rules |= {(*path, *key): why for key, why in _fill_in(place["engine"], machine, place["model"]).items()}
        if place["engine"].max_model_len is None and machine.max_model_len is not None:
            of_checkpoint[(*path, "engine", "max_model_len")] = machine.max_model_len
    return rules, of_checkpoint


def _whole_text(engine, machine: Machine, asked: Collection[str]) -> dict[str, str]:
    """Turn off the options of `WHOLE_TEXT` for a model that computes a text whole.

    Return the rule of each. asked : options that the experiment gives, which stay; the site refuses those that are on.
    Source: vLLM 0.33, vllm/v1/engine/core.py (EngineCore: models without KV cache), vllm/engine/arg_utils.py.
    """
    if machine.model is None or machine.model.is_causal:
        return {}
    why = f"{machine.model.name} attends in both directions: prompts are computed whole, and nothing is kept"
    found = {}
    for key in WHOLE_TEXT:
        place = engine.parameters if key in engine.parameters.__struct_fields__ else engine
        if key not in asked and getattr(place, key, False):
            if place is engine.parameters:
                changed = msgspec.structs.replace(place, **{key: False})
                msgspec.structs.force_setattr(engine, "parameters", changed)
            else:
                msgspec.structs.force_setattr(engine, key, False)
            found[key] = why
    return found


def _fill_in(engine, machine: Machine, model: Any) -> dict[Path, str]:
    filled, own = {}, engine.parameters
    values, tables = {}, {}
    found = dict(registry.load("scheduler", engine.scheduler).defaults(engine, machine))
    kv_dtype = found.pop("kv_cache_dtype", None)
    if kv_dtype is not None and machine.model is not None and machine.kv_cache_dtype == "auto":
        msgspec.structs.force_setattr(model, "kv_cache_dtype", kv_dtype.value)
        filled["model", "kv_cache_dtype"] = kv_dtype.why
    for key, default in found.items():
        if "." in key:
            table, name = key.split(".")            # of a table that the file gives
            given = getattr(own, table)
            if given is not None and getattr(given, name) is None:
                filled["engine", table, name] = default.why
                tables.setdefault(table, {})[name] = default.value
            continue
        is_own = key in own.__struct_fields__
        if default.value is None or getattr(own if is_own else engine, key) is not None:
            continue
        filled["engine", key] = default.why
        if is_own:
            values[key] = default.value
        else:
            msgspec.structs.force_setattr(engine, key, default.value)
    values |= {table: msgspec.structs.replace(getattr(own, table), **found) for table, found in tables.items()}
    if values:
        msgspec.structs.force_setattr(engine, "parameters", msgspec.structs.replace(own, **values))
    return filled


def _constants(parameters) -> dict[str, str]:
    """Return the defaults that an engine has on every card, by key, where its class names the engine."""
    engine = getattr(type(parameters), "ENGINE", None)
    return {} if engine is None else dict.fromkeys(parameters.__struct_fields__, f"{engine}: its default on every card")


def _machine_of(place: Mapping[str, Any], missing: object) -> Machine:
    """Return the facts of a pool; those that cannot be read are reported by the checks that need them."""
    known = {name: None if place[name] is missing else place[name] for name in ("model", "hardware", "topology")}
    card = model = accelerator = None
    with suppress(InputErrors, OSError, ValueError):
        accelerator = known["hardware"] and load_accelerator(known["hardware"].name)
        card = accelerator and as_card(accelerator)
    with suppress(InputErrors, OSError, ValueError):
        model = known["model"] and model_of(known["model"])
    length = place["engine"].max_model_len or (model.max_position_embeddings if model is not None else None)
    deployment = None
    with suppress(InputErrors, ValueError):
        if model is not None and accelerator is not None and known["topology"] is not None:
            deployment = _deployment(known["model"], model, accelerator, known["topology"])
    return Machine(card, model, length, known["topology"], place.get("role", "both"),
                   known["model"].kv_cache_dtype if known["model"] else "auto", deployment)


def _deployment(given, model: ModelSpec, accelerator: AcceleratorSpec, topology) -> Deployment:
    """Return a model on its ranks; those of data parallelism share the experts of a model that has some."""
    ways = Parallelism(
        tensor_parallel=topology.tensor_parallel, pipeline_parallel=topology.pipeline_parallel,
        expert_parallel=topology.expert_parallel, data_parallel=topology.data_parallel if model.moe is not None else 1)
    return Deployment(model=model, accelerator=accelerator, parallelism=ways, weight_dtype=given.dtype,
                      kv_cache_dtype=given.kv_cache_dtype)
