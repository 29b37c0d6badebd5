"""Removal of a class's keys when a later layer of the experiment chooses another class."""
from collections.abc import Mapping

import msgspec

from simulator import registry
from simulator.config.fields import Field, alternatives, bare, extra_of, is_struct, table_of
from simulator.errors import InputErrors


def forget(struct: type[msgspec.Struct], below: dict, above: Mapping, search: tuple[str, ...]) -> None:
    """Drop the keys of a class that the next layer no longer chooses.

    Keys that the new class also has are kept. So `latency.backend` alone can be overridden, or given in a file that
    extends another. Unknown keys are kept as well, and refused later.

    Parameters
    ----------
    struct : the Struct that reads the table.
    below, above : the table in earlier layers, and in the layer to be added.
    search : folders searched for a user's module.
    """
    if not below:
        return
    table = table_of(struct)
    for field in table.fields:
        is_in_both = isinstance(below.get(field.name), dict) and isinstance(above.get(field.name), Mapping)
        if is_in_both and (inner := _struct_of(field)):
            forget(inner, below[field.name], above[field.name], search)
    if table.kind is None:
        return
    after = {**below, **above}
    new = _chosen(struct, after, search)
    old = _chosen(struct, below, search) if _name(struct, below) != _name(struct, after) else new
    if old is None or new is None:      # refused when it is read
        return
    if old is not new:
        own = {field.name: goes_with(field, table.kind, _name(struct, after), search) for field in table.fields}
        for key in _keys(old, below, search) - _keys(new, after, search) - own.keys():
            below.pop(key, None)
        for key in (key for key, goes in own.items() if not goes):
            below.pop(key, None)
    forget(new, below, above, search)


def goes_with(field: Field, kind: str, name: str, search: tuple[str, ...] = ()) -> bool:
    """Return whether a key of a table has an effect with the chosen class.

    A user's class may use any key.
    """
    needs = extra_of(field.hint).get("needs")
    return needs is None or ":" in name or getattr(registry.load(kind, name, search), needs)


def _struct_of(field: Field) -> type[msgspec.Struct] | None:
    return next((bare(option) for option in alternatives(field.hint) if is_struct(option)), None)


def _chosen(struct: type[msgspec.Struct], data: Mapping, search: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """Return the Parameters of the class that a table chooses; None if no class of that name can be loaded."""
    name = _name(struct, data)
    if not isinstance(name, str):
        return None
    try:
        return registry.parameters_of(registry.load(table_of(struct).kind, name, search))
    except InputErrors:
        return None


def _name(struct: type[msgspec.Struct], data: Mapping) -> object:
    field = next(field for field in table_of(struct).fields if field.names_kind)
    return data.get(field.name, field.default)


def _keys(struct: type[msgspec.Struct], data: Mapping, search: tuple[str, ...]) -> set[str]:
    """Return the keys that a Struct knows, and the keys of the class that its table chooses."""
    keys = {field.name for field in table_of(struct).fields}
    chosen = _chosen(struct, data, search) if table_of(struct).kind else None
    return keys | (_keys(chosen, data, search) if chosen else set())
