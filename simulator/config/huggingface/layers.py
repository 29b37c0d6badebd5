"""Token mixers of the layers of a Hugging Face model: full, sliding or linear attention, or several side by side.

A layout function takes the keys and the number of layers and returns what `ModelSpec` needs: the letters of the layers,
[sliding_attention] and [linear_attention]. A function with other arguments builds a layout function.
"""
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from simulator.config.huggingface.keys import HEAD_DIM, HEADS, HIDDEN_SIZE, Key, Keys
from simulator.config.words import show

LETTERS = {"full_attention": "F", "attention": "F", "sliding_attention": "S", "chunked_attention": "S",
           "linear_attention": "L", "mamba": "L", "conv": "L", "indexed_attention": "F",
           "deepseek_sparse_attention": "F"}
BLOCK_TYPES = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
SHARED_CACHE = "+shared_cache"                  # a layer that reads an earlier one's
MIXERS = {"F": ("attention",), "S": ("sliding_attention",), "L": ("linear_attention",), "-": ()}


class Layers(NamedTuple):
    """Mixers of layers.

    letters : repeated to all layers; of MIXERS, or of `mixers`.
    sliding, linear : [sliding_attention], [linear_attention].
    mixers : names of the mixers of more letters. parts : their tables in [parts].
    networks : names of the networks of each layer; None: by the keys of experts.
    norms : of each layer; None: the family's.
    per_layer : the keys as each layer has them, beyond lists of numbers; None: the same in all.
    around : names of the parts around the others of each layer. embeddings : beside that of tokens.
    """

    letters: str = "F"
    sliding: dict | None = None
    linear: dict | None = None
    mixers: dict[str, tuple[str, ...]] = MappingProxyType({})
    parts: dict[str, dict] = MappingProxyType({})
    networks: list[tuple[str, ...]] | None = None
    norms: list[int] | None = None
    per_layer: list[Keys] | None = None
    around: tuple[str, ...] = ()
    embeddings: tuple[dict, ...] = ()

    def names(self, letter: str) -> tuple[str, ...]:
        """Return the names of the mixers of a letter."""
        return self.mixers.get(letter) or MIXERS[letter]


Layout = Callable[[Keys, int], Layers]


def full(keys: Keys, count: int) -> Layers:
    """Every layer attends to the whole context."""
    return Layers()


def standard(keys: Keys, count: int) -> Layers:
    """Layers slide as layer_types or sliding_window_pattern say.

    Without either, all attend to the whole context.
    """
    letters = _listed(keys, count) or _patterned(keys) or "F"
    return Layers(letters, _window(keys) if "S" in letters else None)


def windowed(implied: int) -> Layout:
    """Layers slide if sliding_window is a number; absent: `implied`.

    All layers then, or those in layer_types.
    """
    def layout(keys: Keys, count: int) -> Layers:
        window = keys.number(Key("sliding_window", 0)) if "sliding_window" in keys.table else implied
        letters = (_listed(keys, count) or "S") if window else "F"
        return Layers(letters, {"window": window}) if "S" in letters else Layers()
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
    """Five sliding layers per full layer, which has separate heads.

    E models also have a share of each token.
    """
    letters = _listed(keys, count) or "SSSSSF"
    change = {"window": keys.number(Key("sliding_window", 512)), "head_dim": keys.number(Key("head_dim", 256)),
              "num_kv_heads": keys.number(Key("num_key_value_heads"))}
    return _per_layer_input(Layers(letters, change if "S" in letters else None), keys, count)


def gemma3n(keys: Keys, count: int) -> Layers:
    """Gemma-3n: windows, AltUp and Laurel, and a share of each token in every layer."""
    letters = _listed(keys, count) or "SSSSF"
    streams = {"kind": "alt_up", "streams": keys.number(Key("altup_num_inputs", 4)),
               "laurel_rank": keys.number(Key("laurel_rank", 64))}
    layers = Layers(letters, {"window": keys.number(Key("sliding_window", 512))} if "S" in letters else None,
                    parts={"alt_up": {"around": streams}}, around=("alt_up",))
    return _per_layer_input(layers, keys, count)


def _per_layer_input(layers: Layers, keys: Keys, count: int) -> Layers:
    """Add the embedding with a share for each layer, and the last layers that read an earlier one's cache."""
    width = keys.number(Key("hidden_size_per_layer_input", 0, least=0))
    shared = min(count, keys.number(Key("num_kv_shared_layers", 0, least=0)))
    if width:
        rows = keys.number(Key("vocab_size_per_layer_input", keys.number(Key("vocab_size"))))
        embedding = {"kind": "per_layer", "vocab_size": rows, "width": width, "num_layers": count}
        layers = layers._replace(
            parts={**layers.parts, "per_layer_input": {"around": {"kind": "per_layer_input", "width": width}}},
            around=(*layers.around, "per_layer_input"), embeddings=(embedding,))
    if not shared:
        return layers
    is_wide = keys.flag(Key("use_double_wide_mlp", False))
    of_layers = keys.of_layers(count)
    of_layers = of_layers if len(of_layers) == count else of_layers * count
    found = of_layers[:count - shared]
    for each in of_layers[count - shared:]:
        wide = {"intermediate_size": 2 * each.number(Key("intermediate_size"))} if is_wide else {}
        found.append(each.changed({SHARED_CACHE: True} | wide))
    return layers._replace(per_layer=found)


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


def step(keys: Keys, count: int) -> Layers:
    """Step-3.5 and 3.7: attention_other_setting are the heads of windowed layers."""
    letters = _listed(keys, count) or "FSSS"
    other = keys.get("attention_other_setting", {})
    if not isinstance(other, dict):
        keys.fault("attention_other_setting", f"expected a table, found {show(other)}")
        other = {}
    inner = keys.below("attention_other_setting", other)
    own = {"num_heads": Key("num_attention_heads", 0), "head_dim": Key("head_dim", 0),
           "num_kv_heads": Key("num_attention_groups", 0)}
    change = _window(keys) | {name: value for name, key in own.items() if (value := inner.number(key))}
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
    heads = keys.number(HEADS)
    linear = {"kind": "lightning", "num_heads": heads, "head_dim": head_dim(keys, heads, None)}
    return Layers(letters, None, linear if "L" in letters else None)


def nemotron_h(keys: Keys, count: int) -> Layers:
    """Nemotron-H: one sublayer a layer: M Mamba-2, * attention, E experts, - MLP."""
    pattern = keys.get("hybrid_override_pattern")
    if pattern is None and (kinds := keys.sequence("layers_block_type", count, tuple(BLOCK_TYPES))):
        pattern = "".join(BLOCK_TYPES[kind] for kind in kinds)
    kinds = set(pattern) if isinstance(pattern, str) else set()
    if not kinds or len(pattern) != count or kinds - set("M*E-"):
        keys.fault("hybrid_override_pattern", f"expected {count} letters of M, *, E and -")
        return Layers()
    linear = {"kind": "mamba2",
              "num_heads": keys.number(Key("mamba_num_heads")), "head_dim": keys.number(Key("mamba_head_dim")),
              "num_groups": keys.number(Key("n_groups", 8)), "state_size": keys.number(Key("ssm_state_size", 128)),
              "conv_kernel": keys.number(Key("conv_kernel", 4)), "conv_bias": keys.flag(Key("use_conv_bias", True)),
              "state_dtype": keys.get("mamba_ssm_cache_dtype", "float32")}
    networks = {"E": ("moe",), "-": ("mlp",)}
    return Layers(pattern.translate(str.maketrans("M*E", "LF-")), None, linear if "M" in pattern else None,
                  networks=[networks.get(letter, ()) for letter in pattern], norms=[1] * count)


def granite_hybrid(keys: Keys, count: int) -> Layers:
    """Granite 4: Mamba-2, and attention where layer_types say so."""
    letters = _listed(keys, count) or "F"
    return Layers(letters, None, _bamba(keys, keys.number(Key("mamba_n_groups", 1)), True) if "L" in letters else None)


def falcon_h1(keys: Keys, count: int) -> Layers:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    linear = _bamba(keys, keys.number(Key("mamba_n_groups", 1)), False)
    if (width := keys.number(Key("mamba_d_ssm", 0))) and width != linear["num_heads"] * linear["head_dim"]:
        keys.fault("mamba_d_ssm", f"expected mamba_n_heads x mamba_d_head = {linear['num_heads']} x "
                                  f"{linear['head_dim']}, found {width}")
    return Layers("B", None, linear, mixers={"B": ("attention", "linear_attention")})


def _bamba(keys: Keys, groups: int, norm: bool) -> dict:
    """Read Mamba-2 under the names of Bamba, as Granite 4 and Falcon-H1 have it."""
    return {"kind": "mamba2", "num_heads": keys.number(Key("mamba_n_heads", 128)),
            "head_dim": keys.number(Key("mamba_d_head", 64)), "num_groups": groups,
            "state_size": keys.number(Key("mamba_d_state", 256)), "conv_kernel": keys.number(Key("mamba_d_conv", 4)),
            "conv_bias": keys.flag(Key("mamba_conv_bias", True)), "state_dtype": keys.get("mamba_ssm_cache_dtype"),
            "projection_bias": keys.flag(Key("mamba_proj_bias", False)),
            "output_norm": keys.flag(Key("mamba_rms_norm", norm))}


def head_dim(keys: Keys, heads: int, default: int | None) -> int:
    """Return head_dim, or the family's value: `default` or hidden / heads."""
    value = keys.number(Key(HEAD_DIM, default or 0))
    hidden = keys.number(HIDDEN_SIZE)
    if not value and hidden % heads:
        keys.fault("head_dim", f"required key is missing: hidden_size = {hidden} is no multiple of {heads} heads")
    return value or max(1, hidden // heads)


def _window(keys: Keys) -> dict:
    return {"window": keys.number(Key("sliding_window|sliding_window_size"))}


def _listed(keys: Keys, count: int) -> str | None:
    kinds = keys.sequence("layer_types", count, tuple(LETTERS))
    return "".join(LETTERS[kind] for kind in kinds) if kinds else None


def _patterned(keys: Keys) -> str | None:
    """Return the letters of sliding_window_pattern: every how many layers one is full, or "LLLG"."""
    if keys.get("sliding_window") is None:
        return None
    pattern = keys.get("sliding_window_pattern|_sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return pattern.translate(str.maketrans("LG", "SF"))
    if pattern is not None and (type(pattern) is not int or not 0 < pattern <= 10_000):
        keys.fault("sliding_window_pattern", f'expected an integer >= 1, or letters L and G, found {show(pattern)}')
        return None
    return "S" * (pattern - 1) + "F" if pattern else None
