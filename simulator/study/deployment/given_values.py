"""Values of an experiment that are not the defaults of its schema, leaf by leaf."""
from collections.abc import Iterator
from typing import Any

import msgspec

from simulator.config.fields import table_of
from simulator.config.load import plain_value


def given_values(struct: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted key and TOML value of every non-default key of a table.

    Keys of a chosen class are siblings of the choice.
    """
    table = table_of(type(struct))
    for field in table.fields:
        value = getattr(struct, field.name)
        if isinstance(value, msgspec.Struct):
            yield from given_values(value, f"{prefix}{field.name}.")
        elif value is not None and (field.required or value != field.default):
            yield f"{prefix}{field.name}", plain_value(value)
    if table.choice is not None:
        yield from given_values(getattr(struct, table.choice), prefix)
