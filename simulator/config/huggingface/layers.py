"""Layers of a Hugging Face model: full, sliding or linear attention, and with or without experts.

A layout function takes the keys and the number of layers and returns what `ModelSpec` needs: the letters of the layers,
[sliding_attention] and [linear_attention]. A function with other arguments builds a layout function.
"""
from collections.abc import Callable
from typing import NamedTuple

from simulator.config.huggingface.keys import HIDDEN_SIZE, Key, Keys

LETTERS = {"full_attention": "F", "sliding_attention": "S", "chunked_attention": "S", "linear_attention": "L"}


class Layers(NamedTuple):
    """Kinds of layers, one letter each, and the tables for sliding and linear layers."""

    letters: str = "F"
    sliding: dict | None = None
    linear: dict | None = None


Layout = Callable[[Keys, int], Layers]


def full(keys: Keys, count: int) -> Layers:
    """Every layer attends to the whole context."""
    return Layers()


def windowed(implied: int) -> Layout:
    """Every layer slides if sliding_window is a number; absent: `implied`."""
    def layout(keys: Keys, count: int) -> Layers:
        window = keys.number(Key("sliding_window", 0)) if "sliding_window" in keys.table else implied
        return Layers("S", {"window": window}) if window else Layers()
    return layout


def qwen(keys: Keys, count: int) -> Layers:
    """Layers from max_window_layers on slide, with use_sliding_window only."""
    if not keys.flag(Key("use_sliding_window", False)):
        return Layers()
    whole = min(count, keys.number(Key("max_window_layers", 28, least=0)))
    letters = _listed(keys, count) or "F" * whole + "S" * (count - whole)
    window = keys.number(Key("sliding_window", 4096))
    return Layers(letters, {"window": window} if "S" in letters else None)


def alternating(window: Key, period: Key | int) -> Layout:
    """Layers slide except every `period`-th, unless layer_types lists them."""
    def layout(keys: Keys, count: int) -> Layers:
        letters = _listed(keys, count) or "S" * (keys.number(period) - 1) + "F"
        return Layers(letters, {"window": keys.number(window)}) if "S" in letters else Layers()
    return layout


def gemma4(keys: Keys, count: int) -> Layers:
    """Five sliding layers per full layer, which has separate heads."""
    letters = _listed(keys, count) or "SSSSSF"
    change = {"window": keys.number(Key("sliding_window", 512)), "head_dim": keys.number(Key("head_dim", 256)),
              "num_kv_heads": keys.number(Key("num_key_value_heads"))}
    return Layers(letters, change if "S" in letters else None)


def chunked(keys: Keys, count: int) -> Layers:
    """Llama-4: layers attend within a chunk, except where no_rope_layers has a 0."""
    rotary = keys.sequence("no_rope_layers", count, (0, 1)) if keys.get("no_rope_layers") else None
    interval = keys.number(Key("no_rope_layer_interval", 4))
    letters = _listed(keys, count) or ("".join("FS"[bit] for bit in rotary) if rotary else "S" * (interval - 1) + "F")
    window = keys.number(Key("attention_chunk_size", 8192))
    return Layers(letters, {"window": window, "chunked": True} if "S" in letters else None)


def mimo(keys: Keys, count: int) -> Layers:
    """MiMo-V2: layers with a 1 in hybrid_layer_pattern slide, with own KV heads."""
    marks = keys.sequence("hybrid_layer_pattern", count, (0, 1))
    if marks is None:
        if keys.get("hybrid_layer_pattern") is None:
            keys.fault("hybrid_layer_pattern", "required key is missing")
        return Layers()
    change = {"window": keys.number(Key("sliding_window_size|sliding_window")),
              "num_kv_heads": keys.number(Key("swa_num_key_value_heads")),
              "sinks": keys.flag(Key("add_swa_attention_sink_bias", False))}
    letters = "".join("FS"[mark] for mark in marks)
    return Layers(letters, change if "S" in letters else None)


def delta_net(keys: Keys, count: int) -> Layers:
    """Qwen3-Next: every full_attention_interval-th layer is full, others linear.

    Format of states here and below: vLLM 0.32.0, vllm/model_executor/models/config.py.
    """
    letters = _listed(keys, count) or "L" * (keys.number(Key("full_attention_interval", 4)) - 1) + "F"
    linear = {"kind": "gated_delta_net",
              "num_key_heads": keys.number(Key("linear_num_key_heads", 16)),
              "num_value_heads": keys.number(Key("linear_num_value_heads", 32)),
              "key_head_dim": keys.number(Key("linear_key_head_dim", 128)),
              "value_head_dim": keys.number(Key("linear_value_head_dim", 128)),
              "conv_kernel": keys.number(Key("linear_conv_kernel_dim", 4)),
              "state_dtype": keys.get("mamba_ssm_dtype")}
    return Layers(letters, None, linear if "L" in letters else None)


def lightning(keys: Keys, count: int) -> Layers:
    """MiniMax: attn_type_list has 0 for linear layers; or layer_types names them."""
    marks = keys.sequence("attn_type_list", count, (0, 1))
    letters = _listed(keys, count) or ("".join("LF"[mark] for mark in marks) if marks else "FL")
    heads = keys.number(Key("num_attention_heads"))
    linear = {"kind": "lightning", "num_heads": heads, "head_dim": head_dim(keys, heads, None)}
    return Layers(letters, None, linear if "L" in letters else None)


def nemotron_h(keys: Keys, count: int) -> Layers:
    """Nemotron-H: a letter a layer: M Mamba-2, * attention, E experts, - MLP."""
    pattern = keys.get("hybrid_override_pattern")
    kinds = set(pattern) if isinstance(pattern, str) else set()
    if not kinds or len(pattern) != count or kinds - set("M*E-") or {"E", "-"} <= kinds:
        keys.fault("hybrid_override_pattern", f"expected {count} letters of M, * and one of E and -")
        return Layers()
    letters = pattern.translate(str.maketrans("M*E", "LF-"))
    linear = {"kind": "mamba2",
              "num_heads": keys.number(Key("mamba_num_heads")), "head_dim": keys.number(Key("mamba_head_dim")),
              "num_groups": keys.number(Key("n_groups", 8)), "state_size": keys.number(Key("ssm_state_size", 128)),
              "conv_kernel": keys.number(Key("conv_kernel", 4)), "conv_bias": keys.flag(Key("use_conv_bias", True)),
              "state_dtype": keys.get("mamba_ssm_cache_dtype", "float32")}
    return Layers(letters, None, linear if "L" in letters else None)


def head_dim(keys: Keys, heads: int, default: int | None) -> int:
    """Return head_dim, or the family's value: `default` or hidden / heads."""
    value = keys.number(Key("head_dim", default or 0))
    return value or max(1, keys.number(HIDDEN_SIZE) // heads)


def shortest_pattern(letters: str, count: int) -> str:
    """Return the shortest text that, repeated, gives the letters of all layers."""
    whole = (letters * count)[:count] if letters else ""
    return next((whole[:n] for n in range(1, count) if whole[n:] == whole[:count - n]), whole)


def _listed(keys: Keys, count: int) -> str | None:
    kinds = keys.sequence("layer_types", count, tuple(LETTERS))
    return "".join(LETTERS[kind] for kind in kinds) if kinds else None
