"""Random tables of the experiment file, as the Structs of the schema and the registry declare them.

A new key, policy or model is drawn as soon as it is declared: nothing here names one, but for those that need a file, a
program or minutes.
"""
from random import Random
from typing import Any

from msgspec import NODEFAULT, inspect

from simulator import registry
from simulator.config.fields import (
    Field,
    alternatives,
    bare,
    element_of,
    extra_of,
    is_struct,
    named_element_of,
    node_of,
    table_of,
)

FACTS = {"model": ("llama-3.1-8b", "llama-3.2-1b", "gemma-2-9b", "qwen3-30b-a3b", "gpt-oss-20b"),
         "hardware": ("h100-sxm-80gb", "a100-sxm-80gb", "l40s"), "node": ("dgx-h100",)}
# What reads files of the user, starts programs or trains for minutes.
LEFT_OUT = {"latency": {"forest", "operators", "aicb"}, "collective": {"external", "table"},
            "workload": {"clients", "trace", "vllm_multi_turn"}, "arrival": {"trace"},
            "length_distribution": {"trace"}, "vidur_length": {"trace"}, "vidur_interval": {"trace"}}
SLOW = ("drift_steps", "eplb")      # price the experts anew every few iterations
WORDS = ("t0", "t1", "a0", "a1", "critical", "standard", "batch")
MAX_DEPTH = 5


def names_of(kind: str) -> list[str]:
    """Return the names of a kind that need nothing but an experiment file."""
    return sorted(registry.KINDS[kind].entries.keys() - LEFT_OUT.get(kind, set()))


class Undrawable(Exception):
    """A required key has no value that can be drawn."""


def table(rng: Random, struct: type, density: float, depth: int = 0) -> dict[str, Any]:
    """Return a random table of a Struct: what it requires, and a share of the rest.

    density : of the keys that may be left out; less in tables within.
    """
    found = {}
    declared = table_of(struct)
    for field in declared.fields:
        if field.names_kind is None and (field.required or rng.random() < density):
            try:
                found[field.name] = value(rng, field, density, depth)
            except Undrawable:
                if field.required:
                    raise
    if declared.kind:
        found |= choice(rng, declared.kind, density, depth)
    return found


def choice(rng: Random, kind: str, density: float, depth: int = 0, name: str | None = None) -> dict[str, Any]:
    """Return the keys that choose a class of a kind, and those of its own."""
    name = name or rng.choice(names_of(kind))
    parameters = registry.parameters_of(registry.load(kind, name))
    return {registry.KINDS[kind].key: name} | table(rng, parameters, density, depth)


def value(rng: Random, field: Field, density: float, depth: int = 0) -> Any:
    """Return a random value of a key."""
    options = alternatives(field.hint)
    if "path" in extra_of(field.hint) or depth > MAX_DEPTH or not options or field.name in SLOW:
        raise Undrawable(field.name)
    if (facts := extra_of(field.hint).get("facts")) and bare(options[0]) is str:
        return rng.choice(FACTS[facts])
    return _of_type(rng, rng.choice(options), field, density / 2, depth + 1)


def _of_type(rng: Random, hint: Any, field: Field, density: float, depth: int) -> Any:
    if is_struct(hint):
        return table(rng, bare(hint), density, depth)
    if (element := element_of(hint)) is not None:
        return [_of_type(rng, rng.choice(alternatives(element)), field, density, depth)
                for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if (element := named_element_of(hint)) is not None:
        return {rng.choice(FACTS["hardware"]): table(rng, bare(element), density, depth)}
    node = node_of(hint)
    if isinstance(node, inspect.LiteralType):
        return rng.choice(node.values)
    if isinstance(node, inspect.BoolType):
        return rng.random() < 0.5
    if isinstance(node, inspect.IntType):
        return _whole(rng, node, field.default)
    if isinstance(node, inspect.FloatType):
        return _real(rng, node, field)
    if isinstance(node, inspect.StrType):
        return rng.choice(WORDS)
    raise Undrawable(field.name)


def _whole(rng: Random, node: inspect.IntType, default: Any) -> int:
    """Return a small whole number, one near the default, or the least that is allowed."""
    least = node.ge if node.ge is not None else -3 if node.gt is None else node.gt + 1
    near = default if isinstance(default, int) and default is not NODEFAULT else 4
    drawn = rng.choice([least, least + 1, rng.randint(1, 8), rng.randint(1, 64), near // 2, 2 * near])
    return max(least, min(drawn, node.le if node.le is not None else drawn))


# What is usual here, where an iteration takes milliseconds and a run a second or less.
USUAL = {"_s": (0.001, 0.5), "_ms": (0.1, 200.0), "_us": (1.0, 20_000.0), "_per_s": (5.0, 2000.0), "_frac": (0.0, 1.0)}


def _real(rng: Random, node: inspect.FloatType, field: Field) -> float:
    """Return a number of the usual size of its unit, one near the default, or the least or the most."""
    least = node.ge if node.ge is not None else node.gt if node.gt is not None else 0.0
    most = node.le if node.le is not None else node.lt
    unit = next((unit for unit in ("_per_s", "_ms", "_us", "_frac", "_s") if field.name.endswith(unit)), None)
    low, high = USUAL[unit] if unit else (least, most if most is not None and most - least <= 10 else least + 4)
    drawn = low + (high - low) * rng.random() ** (3 if unit else 1)
    if isinstance(field.default, float) and rng.random() < 0.3:
        drawn = field.default * rng.choice([0.5, 2.0])
    elif node.ge is not None and rng.random() < 0.15:
        drawn = least
    drawn = max(drawn, least)
    return round(drawn if most is None else min(drawn, most), 6) or least
