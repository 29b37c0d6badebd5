"""The experiment file as a JSON Schema (draft 7), for editors.

The schema requires no keys that a file may inherit from the file it extends: it refuses unknown keys and wrong values,
and `validate` reports missing keys. A table that chooses a class "module:Class" may hold any keys.
"""
from typing import Any

import msgspec

from simulator import registry
from simulator.config.experiment import Experiment
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
from simulator.config.load import plain_value
from simulator.domain import facts

EXTENDS = "a TOML file whose values are the defaults of this one"
STUDY = "study over many runs of this experiment: `simulator sweep`, `capacity`, `tune`; `calibrate`"
OWN_FILE = r"/|\.toml$"         # in place of a name: the path of a user's file
OWN_CLASS = ":"                 # in place of a name: module:Class


def experiment_schema() -> dict[str, Any]:
    """Return the JSON Schema of the whole experiment file."""
    definitions = {}
    schema = _table(Experiment, (), definitions)
    schema["properties"]["extends"] = {"type": "string", "description": EXTENDS}
    schema["properties"]["study"] = _study(definitions)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Experiment", **schema,
            "anyOf": [{"required": ["workload"]}, {"required": ["extends"]}], "definitions": definitions}


def _study(definitions: dict) -> dict[str, Any]:
    """Return the schema of [study]: a condition for each kind; `kind` may be inherited from the extended file."""
    conditions = [{"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                   "then": _table(registry.study_table(kind), (), definitions)} for kind in registry.STUDIES]
    kinds = {"type": "string", "enum": list(registry.STUDIES)}
    return {"type": "object", "description": STUDY, "properties": {"kind": kinds}, "allOf": conditions}


def _table(struct: type[msgspec.Struct], outer_keys: tuple[str, ...], definitions: dict) -> dict[str, Any]:
    """Return the schema of a table.

    Parameters
    ----------
    outer_keys : keys of the table that another schema describes.
    definitions : receives the schemas that are referred to by name.
    """
    table = table_of(struct)
    properties = dict.fromkeys(outer_keys, True) | {field.name: _field(field, definitions) for field in table.fields}
    schema = {"type": "object", "description": (struct.__doc__ or "").split("\n\n")[0], "properties": properties}
    if table.kind is None:
        return schema | {"additionalProperties": False}
    return schema | {"allOf": _choices(struct, table.kind, tuple(properties), definitions)}


def _choices(struct: type, kind: str, keys: tuple[str, ...], definitions: dict) -> list[dict[str, Any]]:
    """Return a condition for each name that the table's key may hold; without the key, any of the names may apply."""
    key, conditions, references = registry.KINDS[kind].key, [], []
    for name in registry.KINDS[kind].entries:
        reference = f"{struct.__name__}.{name}"
        parameters = registry.parameters_of(registry.load(kind, name))
        if reference not in definitions:
            definitions[reference] = {}         # a policy may wrap another of its kind
            definitions[reference] = _table(parameters, keys, definitions)
        references.append({"$ref": f"#/definitions/{reference}"})
        conditions.append({"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": references[-1]})
    return [*conditions, {"if": {"not": {"required": [key]}}, "then": {"anyOf": references}}]


def _field(field: Field, definitions: dict) -> dict[str, Any]:
    if field.names_kind is None:
        schema = _value(field.hint, definitions)
    else:
        schema = _name(list(registry.KINDS[field.names_kind].entries), OWN_CLASS)
    default = plain_value(field.default)
    has_default = not field.required and default is not None and default != float("inf")     # JSON has no infinity
    return schema | ({"default": default} if has_default else {}) | (
        {"description": field.description} if field.description else {})


def _value(hint: Any, definitions: dict) -> dict[str, Any]:
    tables = next(filter(None, map(named_element_of, alternatives(hint))), None)
    if tables is not None:          # or the name of a file with the tables
        return {"anyOf": [{"type": "object", "additionalProperties": _value(tables, definitions)}, {"type": "string"}]}
    if "facts" in extra_of(hint):
        return _name(facts.names(extra_of(hint)["facts"]), OWN_FILE)
    if "under" in extra_of(hint):   # user-chosen dotted names, which TOML may read as nested tables
        own = _table(extra_of(hint)["own"], (), definitions)["properties"] if "own" in extra_of(hint) else {}
        return {"type": "object", "properties": own}
    options = [_option(option, definitions) for option in alternatives(hint)]
    return options[0] if len(options) == 1 else {"anyOf": options}


def _option(option: Any, definitions: dict) -> dict[str, Any]:
    if is_struct(option):
        return _table(bare(option), (), definitions)
    if (element := element_of(option)) is not None:
        node = node_of(option)
        sizes = {"minItems": node.min_length or None, "maxItems": node.max_length}
        return {"type": "array", "items": _value(element, definitions)} | {
            key: size for key, size in sizes.items() if size is not None}
    return msgspec.json.schema(option)


def _name(names: list[str], other: str) -> dict[str, Any]:
    return {"type": "string", "anyOf": [{"enum": names}, {"pattern": other}]}
