"""Types and values as text for messages."""
from typing import Any

import msgspec
from msgspec import inspect

from simulator.config.fields import Field, alternatives, element_of, node_of
from simulator.registry import KINDS


def allowed_in(field: Field) -> str:
    """Return as text the allowed values of a key; names of a registry kind are listed."""
    if field.names_kind is None:
        return words(field.hint)
    return ", ".join(f'"{name}"' for name in KINDS[field.names_kind].entries) + ' or "module:Class"'


def words(hint: Any) -> str:
    """Return as text the values that an annotation allows.

    >>> words(Annotated[int, msgspec.Meta(ge=1)] | None)
    'an integer >= 1'
    """
    return " or ".join(_words(each) for each in alternatives(hint))


def _words(hint: Any, is_plural: bool = False) -> str:
    match node := node_of(hint):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return ("integers" if is_plural else "an integer") + _bounds(node)
        case inspect.FloatType():
            return ("numbers" if is_plural else "a number") + _bounds(node)
        case inspect.StrType():
            return ("texts" if is_plural else "text") + (f" matching {node.pattern}" if node.pattern else "")
        case inspect.LiteralType(values):
            shown = ", ".join(show(value) for value in sorted(values, key=str))
            return f"one of {shown}" if len(values) > 1 else shown
        case inspect.VarTupleType() | inspect.ListType():
            lists = "lists of " if is_plural else "a list of "
            elements = " or ".join(_words(each, is_plural=True) for each in alternatives(element_of(hint)))
            return lists + elements + _size(node.min_length, node.max_length)
        case inspect.StructType() | inspect.DictType():
            return "tables" if is_plural else "a table"
        case _:
            return "any value"


def _size(least: int | None, most: int | None) -> str:
    if least is not None and least == most:
        return f", exactly {least}"
    bounds = [f"at least {least}"] * bool(least) + [f"at most {most}"] * (most is not None)
    return "".join(f", {bound}" for bound in bounds)


def _bounds(node: inspect.IntType | inspect.FloatType) -> str:
    if node.ge is not None and node.le is not None:
        return f" from {_number(node.ge)} to {_number(node.le)}"
    signs = ((">=", node.ge), (">", node.gt), ("<=", node.le), ("<", node.lt))
    given = [f"{sign} {_number(bound)}" for sign, bound in signs if bound is not None]
    return f" {' and '.join(given)}" if given else ""


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def show(value: Any) -> str:
    """Return a value as it is written in TOML, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, msgspec.Struct)):
        return "a table"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return msgspec.json.encode(value if len(value) <= 60 else value[:57] + "...").decode()
    if isinstance(value, (list, tuple)):
        shown = "[" + ", ".join(show(each) for each in value[:8]) + (", ...]" if len(value) > 8 else "]")
        return shown if len(shown) <= 80 else f"a list of {len(value)} values"
    return str(value)
