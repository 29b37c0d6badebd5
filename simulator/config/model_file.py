"""The text of a file in models/: the keys of a model that differ from their defaults, in the order of the schema."""
import re
import textwrap
from typing import Any

import msgspec
import tomli_w

from simulator.domain.model_spec import ModelSpec

COLUMNS = 116
ABOUT = ("hf_id", "aliases", "architecture", "model_type", "source", "date", "note")      # a paragraph of their own
ARRAY = re.compile(r"^(\w+ = )\[\n((?: +[^\[\]{}\n]+,\n)+)\]$", re.MULTILINE)
COUNT = re.compile(r"^(\w+ = )(\d{5,})$", re.MULTILINE)


def model_toml(model: ModelSpec) -> str:
    """Return TOML that `load_model` reads as this model."""
    stated = {key: value for key, value in _stated(model).items() if key != "name"}
    about = {key: stated.pop(key) for key in ABOUT if key in stated}
    text = "\n".join(tomli_w.dumps(keys, indent=1) for keys in (about, stated) if keys)
    return COUNT.sub(lambda found: f"{found[1]}{int(found[2]):_}", ARRAY.sub(_short, text))


def _stated(part: Any) -> Any:
    """Return a part as plain data without the fields that have their defaults."""
    if isinstance(part, msgspec.Struct):
        config = part.__struct_config__
        kind = {config.tag_field: config.tag} if config.tag else {}
        values = {field.encode_name: (getattr(part, field.name), _default(field))
                  for field in msgspec.structs.fields(part)}
        return kind | {name: _stated(value) for name, (value, default) in values.items()
                       if value is not None and value != default}
    if isinstance(part, dict):
        return {name: _stated(value) for name, value in part.items()}
    return [_stated(value) for value in part] if isinstance(part, tuple | list) else part


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _short(found: re.Match) -> str:
    """Return an array on few lines."""
    items = " ".join(line.strip() for line in found[2].splitlines()).removesuffix(",")
    whole = f"{found[1]}[{items}]"
    if len(whole) <= COLUMNS:
        return whole
    return f"{found[1]}[\n{textwrap.fill(items, COLUMNS, initial_indent='    ', subsequent_indent='    ')}]"
