"""Measured facts about models and accelerators, by which tables and versions, and the errors that were seen."""
from functools import cache
from typing import Any

import tomli

from simulator.assembly.price_sources import card_prices, priced
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve
from simulator.domain.facts import folder, load_accelerator, names, shipped
from simulator.domain.server_defaults.cards import card_of
from simulator.domain.vllm_versions import NEWEST, VERSIONS
from simulator.errors import InputErrors
from simulator.server_line.facts.flag_tables import ENGINES, versions
from simulator.study.capacity.fit import GB

BACKENDS = ("operators", "roofline")
MOST_RANKS, BYTES_PER_WEIGHT = 8, 2     # the replica for which prices are looked up


def engines() -> list[dict[str, Any]]:
    """Return the engines' versions: flags, schedule, and recorded runs that agree."""
    found = []
    for engine, title in ENGINES.items():
        known = {*versions(engine), *(VERSIONS if engine == "vllm" else ())}
        for version in sorted(known, key=lambda text: [int(part) for part in text.split(".")]):
            runs = [row for row in recorded() if (row["engine"], row["version"]) == (engine, version)]
            found.append({"engine": title, "version": version, "flags": version in versions(engine),
                          "is_default": engine == "vllm" and version == NEWEST,
                          "recorded": sum(row["recorded"] for row in runs),
                          "compared": sum(row["compared"] for row in runs)})
    return found


def card_facts(name: str) -> dict[str, Any]:
    """Return the measurements of an accelerator."""
    spec = load_accelerator(name)
    prices = card_prices(spec)
    own = folder("hardware") / "measured" / f"{spec.name}.json"
    return {"hardware": spec.name, "title": spec.title, "architecture": spec.architecture,
            "memory_gb": spec.memory_bytes / GB, "data_sheet": spec.confidence or "not told", "laws": prices.laws,
            "generation": prices.generation, "tables": prices.system, "shares": prices.shares,
            "errors": {operator: {"mean_error": error, "source": how} for operator, (error, how) in
                       prices.errors.items()},
            "single_operators": own.is_file(), "engine_defaults": _has_defaults(spec.name),
            "compared": [row for row in compared() if row["hardware"] == spec.name]}


def model_facts(model: dict[str, str], spec: Any) -> dict[str, Any]:
    """Return the shape of a model in short, and the errors seen with it.

    model : [model] of an experiment.
    """
    return {"model": model.get("name", spec.name), "parameters": spec.num_parameters, "source": spec.source,
            "mixers": list(dict.fromkeys(mixer.title for mixer, _ in spec.mixers)), "experts": spec.moe is not None,
            "compared": [row for row in compared() if row["model"] == model.get("name")]}


def pair_facts(model: dict[str, str], spec: Any, card: str) -> list[dict[str, Any]]:
    """Return the prices of a model on an accelerator, by each backend."""
    found = []
    for backend in BACKENDS:
        given = priced(_experiment(model, spec, card, backend))
        found.append({"backend": backend, "refusal": given.refusal, "sources": dict(given.sources),
                      "notes": list(given.notes)})
    return found


def compared() -> list[dict[str, Any]]:
    """Return the errors of predictions against real servers, a row each."""
    return _rows(str(folder("hardware") / "efficiency/compared.toml"))


def recorded() -> list[dict[str, Any]]:
    """Return the recorded runs of engines, a row each."""
    return _rows(str(shipped("engines") / "recorded.toml"))


def matrix() -> list[dict[str, Any]]:
    """Return the facts of all accelerators."""
    return [card_facts(name) for name in names("hardware")]


def models() -> list[str]:
    """Return the models with servers that predictions were compared to."""
    return [name for name in names("model") if any(row["model"] == name for row in compared())]


@cache
def _rows(path: str) -> list[dict[str, Any]]:
    with open(path, "rb") as stream:
        return tomli.load(stream)["rows"]


def _has_defaults(name: str) -> bool:
    """Return whether engines' defaults by card are known."""
    try:
        card_of(name)
    except InputErrors:
        return False
    return True


def _experiment(model: dict[str, str], spec: Any, card: str, backend: str) -> Any:
    """Return an experiment with the fewest tensor-parallel ranks that hold 16-bit weights, 8 at most."""
    ranks, memory_bytes = 1, load_accelerator(card).memory_bytes
    while ranks < MOST_RANKS and spec.attention.num_heads % (2 * ranks) == 0 and (
            BYTES_PER_WEIGHT * spec.num_parameters > ranks * memory_bytes):
        ranks *= 2
    data = {"name": "support", "model": dict(model), "hardware": {"name": card}, "latency": {"backend": backend},
            "topology": {"tensor_parallel": ranks},
            "engine": {"max_model_len": min(1024, spec.max_position_embeddings), "num_gpu_blocks": 1000} | (
                {} if spec.has_head else {"task": "pooling"}),
            "workload": {"type": "synthetic", "num_requests": 1, "arrival": {"process": "poisson", "rate_per_s": 1.0},
                         "prompt_tokens": {"distribution": "constant", "tokens": 1},
                         "output_tokens": {"distribution": "constant", "tokens": int(spec.has_head)}}}
    layers = Layers(Source("support", ""))
    layers.add(data, layers.main)
    return resolve(layers)
