"""Read the keys of a Hugging Face config.json, and remember every fault on the way."""
from collections.abc import Sequence
from typing import Any, NamedTuple

from simulator.config.huggingface.tensor_files import TensorFiles
from simulator.config.words import show
from simulator.domain.layers.base import MOST

REQUIRED = object()


class Key(NamedTuple):
    """A key of config.json, in all spellings; null is as good as absent."""

    names: str                  # "num_experts|num_local_experts"
    default: Any = REQUIRED     # of the family's configuration class
    least: int = 1              # smallest value of a number


HIDDEN_SIZE = Key("hidden_size|n_embed")


class Keys:
    """The keys of one config.json, with its text model merged over the top level."""

    def __init__(self, table: dict, file: str):
        text = table.get("text_config")
        self.table = table | text if isinstance(text, dict) else table
        if table.get("quantization_config") is not None:        # of the whole model, as in vLLM
            self.table = self.table | {"quantization_config": table["quantization_config"]}
        self.file = file
        self.faults: list[str] = []
        self.files: TensorFiles | None = None       # beside the file

    def fault(self, key: str, what: str):
        """Remember that `key` is wrong."""
        self.faults.append(f"{self.file}: {key}: {what}")

    def get(self, names: str, default: Any = None) -> Any:
        """Return the value of the first of `names` that is there and not null."""
        found = (self.table[name] for name in names.split("|") if self.table.get(name) is not None)
        return next(found, default)

    def number(self, key: Key | int) -> int:
        """Return the integer of a key; a number in place of a key is returned as it is."""
        if not isinstance(key, Key):
            return key
        value = self.get(key.names, key.default)
        if value is key.default and value is not REQUIRED:
            return value
        name = self._name(key)
        if value is REQUIRED:
            self.fault(name, "required key is missing")
        elif type(value) is not int or not key.least <= value <= MOST:
            self.fault(name, f"expected an integer >= {key.least}, found {show(value)}")
        else:
            return value
        return max(key.least, 1)

    def flag(self, key: Key | bool) -> bool:
        """Return the bool of a key; a bool in place of a key is returned as it is."""
        if not isinstance(key, Key):
            return key
        value = self.get(key.names, key.default)
        if type(value) is not bool:
            self.fault(self._name(key), f"expected true or false, found {show(value)}")
            return False
        return value

    def sequence(self, name: str, length: int, allowed: Sequence) -> list | None:
        """Return a list with one entry per layer, each in `allowed`, or None if absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            self.fault(name, f"expected a list with one entry for each of {length} layers, found {show(value)}")
            return None
        for each in value:
            # the type too: true == 1
            if not any(type(each) is type(one) and each == one for one in allowed):
                self.fault(name, f"expected only {', '.join(map(show, allowed))}, found {show(each)}")
                return None
        return value

    def _name(self, key: Key) -> str:
        names = key.names.split("|")
        return next((name for name in names if self.table.get(name) is not None), names[0])
