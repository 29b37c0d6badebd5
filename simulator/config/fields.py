"""Read the declarations of parameter Structs, for validation, messages, `describe` and the schema.

A parameter is `name: Annotated[type, Meta(ge=, le=, description=, extra=)] = default`. `extra` holds facts
beyond those of msgspec:

- `{"path": True}`: the value is the name of a file, relative to the TOML file that contains it;
- `{"inf": True}`: infinity is allowed;
- `{"unit": TEXT}`: the unit, if the name of the parameter does not end in one;
- `{"facts": KIND}`: the value names a model, accelerator ("hardware") or node, or is the path of such a file; in a
  table of tables: the keys are such names;
- `{"under": STRUCT}`: the keys of the table are user-chosen dotted names, as in [study.axes]; each holds STRUCT;
- `{"own": STRUCT}`: fixed keys of a table that also has "under";
- `{"part": KEY}`: a part reads the key, and has its annotation, see simulator/assembly/parts/base.py;
- `{"kind": KIND}`, on the field `parameters`: the table chooses a class of that registry kind by name; keys that are
  not fields of the table's Struct are read by the `Parameters` of the chosen class.
"""
import types
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, inspect

from simulator.registry import KINDS, PARTS, part

NAME = "NAME"                   # placeholder for a name that the user chooses


class Field(NamedTuple):
    """One key of a table."""

    name: str
    hint: Any                   # the annotation, constraints included
    required: bool
    default: Any                # NODEFAULT if there is none
    description: str
    names_kind: str | None      # registry kind of which this key holds a name


class PartField(Field):
    """A key that a part reads; the part is imported when the annotation is read."""

    __slots__ = ()

    @property
    def hint(self) -> Any:
        """The annotation, by the part."""
        key = extra_of(self[1])["part"]
        return part(key).keys[key]

    @property
    def description(self) -> str:
        """The description in the annotation."""
        return description_of(self.hint)


class Table(NamedTuple):
    """The keys of one Struct, and the registry kind that reads its other keys."""

    fields: tuple[Field, ...]
    kind: str | None            # of the class that the table chooses
    choice: str | None          # the attribute that holds the chosen class's Parameters


@cache
def table_of(struct: type[msgspec.Struct]) -> Table:
    """Return the declarations of a Struct."""
    declared = msgspec.structs.fields(struct)
    chooser = next((each for each in declared if "kind" in extra_of(each.type)), None)
    kind = extra_of(chooser.type)["kind"] if chooser else None
    key = KINDS[kind].key if kind else None
    fields = [
        Field(each.encode_name, each.type, each.required, _default(each), description_of(each.type),
              kind if each.encode_name == key else None)
        for each in declared if each is not chooser and "part" not in extra_of(each.type)
    ]
    for each in declared:
        if owner := PARTS.get(extra_of(each.type).get("part")):
            names = [field.name for field in fields]
            place = names.index(owner.before) if owner.before else len(fields)
            fields.insert(place, PartField(each.encode_name, each.type, False, owner.default, "", None))
    return Table(tuple(fields), kind, chooser.name if chooser else None)


def bare(hint: Any) -> Any:
    """Return the annotation without its constraints."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def extra_of(hint: Any) -> dict:
    """Return the merged `extra` of an annotation's Metas."""
    return {key: value for meta in _metas(hint) for key, value in (meta.extra or {}).items()}


def description_of(hint: Any) -> str:
    """Return the description in an annotation, or the empty text."""
    return next((meta.description for meta in reversed(_metas(hint)) if meta.description), "")


def alternatives(hint: Any) -> list:
    """Return the types that an annotation allows, None left out: TOML has no null."""
    inner = bare(hint)
    if get_origin(inner) in (Union, types.UnionType):
        return [each for part in get_args(inner) if part is not type(None) for each in alternatives(part)]
    return [hint]


def is_struct(hint: Any) -> bool:
    """Say whether an annotation is a table with known keys."""
    inner = bare(hint)
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


def element_of(hint: Any) -> Any:
    """Return the annotation of a list's elements; None: no list of any length."""
    inner = bare(hint)
    is_list = get_origin(inner) is list or (get_origin(inner) is tuple and get_args(inner)[-1] is Ellipsis)
    return get_args(inner)[0] if is_list else None


def named_element_of(hint: Any) -> Any:
    """Return the annotation of tables under user-chosen names; None: there are none."""
    inner = bare(hint)
    element = get_args(inner)[1] if get_origin(inner) is dict else None
    return element if element is not None and is_struct(element) else None


def parts_of(hint: Any) -> list[tuple[str, type[msgspec.Struct]]]:
    """Return the Structs that a key may hold.

    Each is paired with the text between the name of the key and the names in it: ".", "[].", ".NAME.".
    """
    found, extra = [], extra_of(hint)
    for option in alternatives(hint):
        found += [(f"{between}.", bare(inner)) for between, inner in (
            *(("[]", each) for each in alternatives(element_of(option))), ("", option),
            (f".{NAME}", named_element_of(option))) if is_struct(inner)]
    between = {"own": ".", "under": f".{NAME}."}
    return found + [(between[key], extra[key]) for key in between if key in extra]


def unit_in(hint: Any) -> str:
    """Return the unit that an annotation or a part of it declares, or the empty text."""
    parts = [part for part in alternatives(hint) if part is not hint] + [element_of(hint)]
    inner = (unit_in(part) for part in parts if part is not None)
    return extra_of(hint).get("unit") or next(filter(None, inner), "")


def node_of(hint: Any) -> inspect.Type:
    """Return msgspec's description of an annotation, constraints included."""
    node = inspect.type_info(hint)
    while isinstance(node, inspect.Metadata):
        node = node.type
    return node


def _metas(hint: Any) -> list[msgspec.Meta]:
    metas = []
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        metas = [meta for meta in more if isinstance(meta, msgspec.Meta)] + metas
    return metas


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
