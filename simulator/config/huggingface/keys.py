"""Read the keys of a Hugging Face config.json, and remember every fault on the way."""
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from simulator.config.huggingface.tensor_files import TensorFiles
from simulator.config.words import show
from simulator.domain.layers.base import MOST

REQUIRED = object()
# Tables with the keys of the language model, one below the other.
TEXT_MODELS = (("text_config",), ("thinker_config", "text_config"), ("llm_config",), ("language_config",))
# Keys that count for the whole checkpoint, in all spellings: the top level first, else the language model's table.
# tie_word_embeddings is not among them: Gemma-3 has false at the top and true below, and shares its embedding.
WHOLE = (("architectures",), ("dtype", "torch_dtype"), ("quantization_config",))


class Key(NamedTuple):
    """A key of config.json, in all spellings; null is as good as absent."""

    names: str                  # "num_experts|num_local_experts"; "attn_config.kv_n_heads": inside a table
    default: Any = REQUIRED     # of the family's configuration class
    least: int = 1              # smallest value of a number


# Spellings of the numbers that every family has.
HIDDEN_SIZE = Key("hidden_size|n_embd|n_embed|d_model")
NUM_LAYERS = "num_hidden_layers|n_layer|n_layers|num_layers"
VOCABULARY = Key("vocab_size|padded_vocab_size")
CONTEXT = Key("max_position_embeddings|n_positions|seq_length|max_seq_len|model_max_length|max_sequence_length")
HEADS = Key("num_attention_heads|n_head|n_heads")
KV_NAMES = ("num_key_value_heads|num_kv_heads|n_head_kv|num_attention_groups|multi_query_group_num|kv_n_heads"
            "|attn_config.kv_n_heads")
HEAD_DIM = "head_dim|attention_head_dim|kv_channels"
MLP_SIZE = "intermediate_size|ffn_dim|n_inner|ffn_hidden_size|block_ff_dim"
# Lists with an entry for each layer, in place of a number.
LAYER_LISTS = ("intermediate_size", "moe_intermediate_size", "moe_topk", "num_shared_expert", "num_experts",
               "num_attention_heads", "num_key_value_heads", "num_experts_per_tok", "ffn_dim",
               "num_attention_heads_per_layer")


class Keys:
    """The keys of one config.json, with its text model merged over the top level."""

    def __init__(self, table: dict, file: str):
        self.table = merged(table)
        self.file = file
        self.faults: list[str] = []
        self.assumed: list[str] = []                # of an architecture without rules of its own
        self.files: TensorFiles | None = None       # beside the file

    def fault(self, key: str, what: str):
        """Remember that a key is wrong; `key`: its name, or all spellings."""
        names = key.split("|")
        name = next((name for name in names if self._value(name) is not None), names[0])
        self.faults.append(f"{self.file}: {name}: {what}")

    def get(self, names: str, default: Any = None) -> Any:
        """Return the value of the first of `names` that is there and not null."""
        found = (self._value(name) for name in names.split("|"))
        return next((value for value in found if value is not None), default)

    def _value(self, name: str) -> Any:
        value = self.table
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return value

    def number(self, key: Key | int) -> int:
        """Return the integer of a key; a number in place of a key is returned as it is."""
        if not isinstance(key, Key):
            return key
        value = self.get(key.names, key.default)
        if value is key.default and value is not REQUIRED:
            return value
        if value is REQUIRED:
            self.fault(key.names, "required key is missing")
        elif type(value) is not int or not key.least <= value <= MOST:
            self.fault(key.names, f"expected an integer >= {key.least}, found {show(value)}")
        else:
            return value
        return max(key.least, 1)

    def flag(self, key: Key | bool) -> bool:
        """Return the bool of a key; a bool in place of a key is returned as it is."""
        if not isinstance(key, Key):
            return key
        value = self.get(key.names, key.default)
        if type(value) is not bool:
            self.fault(key.names, f"expected true or false, found {show(value)}")
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

    def numbers(self, name: str, least: int, most: int) -> list[int] | None:
        """Return a list of integers within bounds, or None if absent or empty."""
        value = self.get(name)
        if not value:
            return None
        if not isinstance(value, list) or any(type(each) is not int or not least <= each <= most for each in value):
            self.fault(name, f"expected a list of layers from {least} to {most}, found {show(value)}")
            return None
        return value

    def of_layers(self, count: int) -> list["Keys"]:
        """Return the keys as each layer has them, where lists give an entry for each.

        One element: all layers have the same.
        """
        lists = {name: value for name in LAYER_LISTS if isinstance(value := self.table.get(name), list)}
        for name, value in lists.items():
            if len(value) != count:
                self.fault(name, f"expected a list with one entry for each of {count} layers, found {len(value)}")
        lists = {name: value for name, value in lists.items() if len(value) == count}
        if not lists:
            return [self]
        return [self.changed({name: value[layer] for name, value in lists.items()}) for layer in range(count)]

    def below(self, name: str, table: dict) -> "Keys":
        """Return the keys of a table inside, with the same faults."""
        inner = Keys(table, self.file if not name else f"{self.file}: {name}")
        inner.faults, inner.assumed = self.faults, self.assumed
        return inner

    def changed(self, changes: dict) -> "Keys":
        """Return the keys with some of other values, and the same faults."""
        return self.below("", self.table | changes)


def merged(table: dict) -> dict:
    """Return the keys of the language model over those of the top level.

    Those of `WHOLE` are the other way round.
    """
    text = next(filter(None, (_inside(table, path) for path in TEXT_MODELS)), None)
    if text is None:
        return table
    found = table | {name: value for name, value in text.items() if value is not None or table.get(name) is None}
    for names in WHOLE:
        if top := first_of(table, names):
            found = {name: value for name, value in found.items() if name not in names} | top
    return found


def first_of(table: dict, names: Iterable[str]) -> dict:
    """Return the first of `names` that is there and not null, as a table."""
    return next(({name: table[name]} for name in names if table.get(name) is not None), {})


def _inside(table: dict, path: Sequence[str]) -> dict | None:
    for step in path:
        table = table.get(step) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None
