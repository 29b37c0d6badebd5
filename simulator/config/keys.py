"""Every key of experiments and studies by its dotted name, with the class that reads it.

The keys of a class that a table chooses belong to that table: `engine.chunk_size` is a key of some schedulers. Items of
a list are not numbered: `pools.replicas`, for `pools.0.replicas` of `--set`; `NAME` replaces a name chosen by the user.
"""
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

import msgspec

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import NAME, Field, parts_of, table_of

ENGINES_NAMES = {"enforce_eager": "engine.cuda_graphs.mode"}    # flags of vLLM that are values of a key here


class Key(NamedTuple):
    """A key as read by one class.

    name : dotted. reader : the chosen class, or kind of study, that reads it, `scheduler vllm`; empty: the key does
    not depend on a choice.
    """

    name: str
    reader: str
    field: Field


@cache
def keys() -> tuple[Key, ...]:
    """Return all keys of experiments in the order of the file.

    A key that several classes read is returned once per class.
    """
    return tuple(_of(Experiment, "", "", ()))


@cache
def all_keys() -> tuple[Key, ...]:
    """Return the keys of experiments, and the keys of [study] for each kind of study."""
    studies = (_of(registry.study_table(kind), "study.", f"study {kind}", ()) for kind in registry.STUDIES)
    return (*keys(), *chain.from_iterable(studies))


def named(asked: str, known: Iterable[Key] | None = None) -> list[Key]:
    """Return the keys that match a name: a whole path, or the end of one.

    Parameters
    ----------
    asked : numbers of list items in it are ignored.
    known : the keys to search; None: the keys of experiments.

    Returns
    -------
    list
        Empty: no key matches.
    """
    asked = ENGINES_NAMES.get(asked.lstrip("-").replace("-", "_"), asked)
    parts = [part for part in asked.split(".") if not part.isdecimal()]
    ends = (*parts[-1:], NAME)          # most keys have another end
    found = [key for key in (keys() if known is None else known)
             if key.name.endswith(ends) and _means(parts, key.name.split(".")[-len(parts):])]
    return [key for key in found if _means(parts, key.name.split("."))] or found


def _means(parts: list[str], known: list[str]) -> bool:
    """Return whether the parts of a name match a key; NAME in a key matches any part."""
    return len(parts) == len(known) and all(
        part == name or (name == NAME and i > 0) for i, (part, name) in enumerate(zip(parts, known, strict=True)))


def _of(struct: type[msgspec.Struct], prefix: str, reader: str, kinds: tuple[str, ...]) -> Iterator[Key]:
    """Yield the keys of one table and of the tables in it.

    Parameters
    ----------
    kinds : registry kinds already chosen by enclosing tables: a class may wrap another of its kind.
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
