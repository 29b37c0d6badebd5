"""Keys of the experiment file that parts read: `registry.PARTS` names them, and a part is imported if one is given."""
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from simulator import registry


def with_parts(base: type[msgspec.Struct], table: str) -> type[msgspec.Struct]:
    """Return a Struct with a field for each key of a table that parts read.

    table : dotted name; "": the experiment itself.
    """
    fields = [(key.rpartition(".")[2], Annotated[Any, Meta(extra={"part": key})], entry.default)
              for key, entry in registry.PARTS.items() if not entry.is_others and key.rpartition(".")[0] == table]
    return msgspec.defstruct(f"{base.__name__}WithParts", fields, bases=(base,), frozen=True, kw_only=True,
                             forbid_unknown_fields=True, module=__name__)


def parts_in(tables: Any, missing: object = None) -> list[type]:
    """Return the parts of which a key is given, in the order of the registry.

    tables : an Experiment, plain data, or tables by name, where `missing` marks a table that could not be read.
    """
    return list(dict.fromkeys(map(registry.part, keys_in(tables, missing))))


def keys_in(tables: Any, missing: object = None) -> list[str]:
    """Return the keys of `registry.PARTS` that are given; parameters as in `parts_in`."""
    places = [tables, *_values(tables, (("pools", True),), missing, None)]
    return [key for key, entry in registry.PARTS.items()
            if any(_is_given(key, entry.default, place, missing) for place in places)]


def _is_given(key: str, default: Any, place: Any, missing: object) -> bool:
    """Return whether an experiment, or one of its pools, uses a key of `registry.PARTS`."""
    steps, expected = _path(key)
    return any(value is not missing and (value == expected if expected else value != default)
               for value in _values(place, steps, missing, default))


@cache
def _path(key: str) -> tuple[tuple[tuple[str, bool], ...], str]:
    """Return the steps to a key, (name, whether it is a list) each, and the value that it has to have, or ""."""
    key, _, expected = key.partition("=")
    return tuple((name.removesuffix("[]"), name.endswith("[]")) for name in key.split(".")), expected


def _values(value: Any, steps: tuple, missing: object, default: Any) -> Iterator[Any]:
    """Yield the value of a key, or of a class that its table chooses; of each table of a list."""
    for i, (name, is_list) in enumerate(steps):
        if value is missing:
            break
        value = value.get(name, default) if type(value) is dict or isinstance(value, Mapping) else getattr(
            value, name, getattr(getattr(value, "parameters", None), name, default))
        if is_list:
            for each in value if isinstance(value, list | tuple) else ():
                yield from _values(each, steps[i + 1:], missing, default)
            return
    yield value


def completed(pools: Iterable, parts: Iterable) -> tuple:
    """Return pools as parts complete them."""
    for part in parts:
        pools = [part.pool(pool) for pool in pools]
    return tuple(pools)
