"""Every key of experiments and studies by its dotted name, whoever reads it.

Keys of a class that a table chooses stand in that table: `engine.chunk_size` is a key of some schedulers. An item of a
list is not numbered here: `pools.replicas`, where `--set` writes `pools.0.replicas`; `NAME` is one of the user's.
"""
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

import msgspec

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import NAME, Field, parts_of, table_of

ENGINES_NAMES = {"enforce_eager": "engine.cuda_graphs.mode"}    # flags of vLLM that are a value of a key of ours


class Key(NamedTuple):
    """A key as one reader knows it.

    name : dotted. reader : the chosen class, or kind of study, that reads it, `scheduler vllm`; empty: it is read
    whatever is chosen.
    """

    name: str
    reader: str
    field: Field


@cache
def keys() -> tuple[Key, ...]:
    """Return all keys of experiments in the order of the file.

    A key that several classes read comes once for each.
    """
    return tuple(_of(Experiment, "", "", ()))


@cache
def all_keys() -> tuple[Key, ...]:
    """Return the keys of experiments, and those of [study] for each kind of study."""
    studies = (_of(registry.study_table(kind), "study.", f"study {kind}", ()) for kind in registry.STUDIES)
    return (*keys(), *chain.from_iterable(studies))


def named(asked: str, known: Iterable[Key] | None = None) -> list[Key]:
    """Return the keys that a name means: its whole path, or the end of one.

    Parameters
    ----------
    asked : numbers of list items in it are passed over.
    known : of which keys; None: of those of experiments.

    Returns
    -------
    list
        Empty: there are none.
    """
    asked = ENGINES_NAMES.get(asked.lstrip("-").replace("-", "_"), asked)
    parts = [part for part in asked.split(".") if not part.isdecimal()]
    found = [key for key in (keys() if known is None else known) if _means(parts, key.name.split(".")[-len(parts):])]
    return [key for key in found if _means(parts, key.name.split("."))] or found


def _means(parts: list[str], known: list[str]) -> bool:
    """Say whether parts of a name are those of a key; the user's own names are whatever stands in their place."""
    return len(parts) == len(known) and all(
        part == name or (name == NAME and i > 0) for i, (part, name) in enumerate(zip(parts, known, strict=True)))


def _of(struct: type[msgspec.Struct], prefix: str, reader: str, kinds: tuple[str, ...]) -> Iterator[Key]:
    """Yield the keys of one table and of those in it.

    Parameters
    ----------
    kinds : of which a class was chosen on the way here: one may wrap another of its kind.
    """
    table = table_of(struct)
    for field in table.fields:
        name = f"{prefix}{field.name}"
        yield Key(name, reader, field)
        for between, inner in parts_of(field.hint):
            yield from _of(inner, name + between.replace("[]", ""), reader, kinds)
    if table.kind is not None and table.kind not in kinds:
        kind = registry.KINDS[table.kind]
        for choice in kind.entries:
            parameters = registry.parameters_of(registry.load(table.kind, choice))
            yield from _of(parameters, prefix, f"{kind.title} {choice}", (*kinds, table.kind))
