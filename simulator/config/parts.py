"""Keys of the experiment file that parts read: `registry.PARTS` names them, and a part is imported if one is given."""
from collections.abc import Iterable, Iterator, Mapping
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
    return [key for key, entry in registry.PARTS.items() if _is_given(key, entry.default, tables, missing)]


def _is_given(key: str, default: Any, tables: Any, missing: object) -> bool:
    """Return whether an experiment, or one of its pools, uses a key of `registry.PARTS`."""
    key, _, expected = key.partition("=")
    return any(value is not missing and (value == expected if expected else value != default)
               for names in (key.split("."), ["pools[]", *key.split(".")])
               for value in _values(tables, names, missing, default))


def _values(value: Any, names: list[str], missing: object, default: Any) -> Iterator[Any]:
    """Yield the value of a key, or of a class that its table chooses; `name[]` : of each table of a list."""
    if value is missing or not names:
        yield value
        return
    name, is_list = names[0].removesuffix("[]"), names[0].endswith("[]")
    inner = value.get(name, default) if isinstance(value, Mapping) else getattr(
        value, name, getattr(getattr(value, "parameters", None), name, default))
    if not is_list:
        yield from _values(inner, names[1:], missing, default)
    elif isinstance(inner, list | tuple):
        for each in inner:
            yield from _values(each, names[1:], missing, default)


def completed(pools: Iterable, parts: Iterable) -> tuple:
    """Return pools as parts complete them."""
    for part in parts:
        pools = [part.pool(pool) for pool in pools]
    return tuple(pools)
