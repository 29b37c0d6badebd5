"""Layouts of models with layers that differ in more than a window: lists of blocks, shared indexers, ratios, states."""
from simulator.config.huggingface.attention import INDEXER, RATIO, SPARSE
from simulator.config.huggingface.keys import HEADS, HIDDEN_SIZE, Key, Keys
from simulator.config.huggingface.layers import Layers
from simulator.config.huggingface.networks import EXPERTS_BESIDE, LINEAR
from simulator.config.words import show

COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128, "sliding_attention": 0}


def longcat(keys: Keys, count: int) -> Layers:
    """LongCat-Flash: two attentions, two dense networks, experts across both."""
    return Layers("D", mixers={"D": ("attention", "attention")}, networks=[("mlp", "mlp", "moe")] * count,
                  norms=[4] * count)


def blocks(keys: Keys, count: int) -> Layers:
    """DeciLM: block_configs with heads, widths, linear and omitted layers.

    A part that is left out has no norm either. Width: 2 ffn_mult hidden / 3, rounded up to a multiple of 256.
    """
    listed = keys.get("block_configs")
    if not isinstance(listed, list) or len(listed) != count:
        keys.fault("block_configs", f"expected a list with one entry for each of {count} layers, found {show(listed)}")
        return Layers()
    found = [_block(keys, each, f"block_configs[{i}]") for i, each in enumerate(listed)]
    letters, networks, changes = zip(*found, strict=True)
    norms = [(letter != "-") + bool(network) for letter, network in zip(letters, networks, strict=True)]
    norms = [norm - (network[:1] == (LINEAR,) == network[1:2]) for norm, network in zip(norms, networks, strict=True)]
    return Layers("".join(letters), networks=list(networks), norms=norms,
                  per_layer=[keys.changed(change) for change in changes])


def _block(keys: Keys, block, where: str) -> tuple[str, tuple[str, ...], dict]:
    """Return the letter, the networks and the changed keys of one block."""
    attention, network = (block.get(name) if isinstance(block, dict) else None for name in ("attention", "ffn"))
    for name, table in (("attention", attention), ("ffn", network)):
        if not isinstance(table, dict):
            keys.fault(f"{where}.{name}", f"expected a table, found {show(table)}")
            return "F", ("mlp",), {}
    changes, letter, names = {}, "F", []
    if attention.get("no_op"):
        letter = "-"
    elif attention.get("replace_with_linear"):
        letter, names = "-", [LINEAR]
    else:
        changes["num_key_value_heads"] = _kv_heads(keys, attention, f"{where}.attention")
        if attention.get("window_length"):
            keys.fault(f"{where}.attention.window_length", "windows in blocks are not supported")
    if network.get("replace_with_linear"):
        names.append(LINEAR)
    elif not network.get("no_op"):
        names.append("mlp")
        changes["intermediate_size"] = _width(keys, network, f"{where}.ffn")
    return letter, tuple(names), changes


def _kv_heads(keys: Keys, attention: dict, where: str) -> int:
    inner, heads = keys.below(where, attention), keys.number(HEADS)
    if "num_key_value_heads" in attention:
        return inner.number(Key("num_key_value_heads"))
    group = inner.number(Key("n_heads_in_group"))
    if heads % group:
        inner.fault("n_heads_in_group", f"expected a divisor of {heads} heads, found {group}")
    return max(1, heads // group)


def _width(keys: Keys, network: dict, where: str) -> int:
    """Return the width; vLLM 0.33, vllm/model_executor/models/nemotron_nas.py, _ffn_mult_to_intermediate_size."""
    inner, factor = keys.below(where, network), network.get("ffn_mult")
    if network.get("intermediate_size") is not None:
        return inner.number(Key("intermediate_size"))
    if type(factor) not in (int, float) or not 0 < factor <= 1024:
        inner.fault("ffn_mult", f"expected a number above 0, found {show(factor)}")
        return 1
    return -(-int(2 * factor * keys.number(HIDDEN_SIZE) / 3) // 256) * 256


def indexed(keys: Keys, count: int) -> Layers:
    """GLM-5.2: layers without an indexer of their own use an earlier layer's choice.

    `indexer_types` list them, or `index_topk_pattern` has an S, or all but every index_topk_freq-th, behind an offset.
    """
    kinds = keys.sequence("indexer_types", count, ("full", "shared"))
    pattern, every = keys.get("index_topk_pattern"), keys.number(Key("index_topk_freq", 1))
    if kinds is not None:
        shared = [kind == "shared" for kind in kinds]
    elif isinstance(pattern, str | list):
        if len(pattern) != count:
            keys.fault("index_topk_pattern", f"expected one entry for each of {count} layers, found {len(pattern)}")
            return Layers()
        shared = [letter in ("S", "shared") for letter in pattern]
    else:
        offset = keys.number(Key("index_skip_topk_offset", 2, least=0))
        shared = [max(layer - offset + 1, 0) % every != 0 for layer in range(count)]
    if not any(shared):
        return Layers()
    return Layers(per_layer=[keys.changed({INDEXER: {"is_shared": True}}) if each else keys for each in shared])


def sparse(keys: Keys, count: int) -> Layers:
    """MiniMax-M3: block-sparse attention where sparse_attention_freq has a 1."""
    config = keys.get("sparse_attention_config")
    if not isinstance(config, dict):
        keys.fault("sparse_attention_config", f"expected a table, found {show(config)}")
        return Layers()
    if config.get("use_sparse_attention") is False:
        return Layers()
    marks = keys.below("sparse_attention_config", config).sequence("sparse_attention_freq", count, (0, 1))
    return Layers(per_layer=[keys.changed({SPARSE: bool(mark)}) for mark in marks or [1] * count])


def ratios(keys: Keys, count: int) -> Layers:
    """DeepSeek-V4: compress_ratios, 0 for a window alone.

    The first num_hash_layers pick experts by a table.

    The list has an entry more for each MTP layer. Hyper-connections are around all parts.
    """
    listed = keys.get("compress_ratios")
    if listed is None and (kinds := keys.sequence("layer_types", count, tuple(COMPRESSED))):
        listed = [COMPRESSED[kind] for kind in kinds]
    if not isinstance(listed, list) or len(listed) < count or any(each not in (0, 4, 128) for each in listed):
        keys.fault("compress_ratios", f"expected an entry of 0, 4 or 128 for each of {count} layers, found "
                                      f"{show(listed)}")
        return Layers()
    hashed = keys.number(Key("num_hash_layers", 0, least=0))
    table = {"hash_vocabulary": keys.number(Key("vocab_size")), "router_bias": False}
    per_layer = [keys.changed({RATIO: ratio} | ({EXPERTS_BESIDE: table} if layer < hashed else {}))
                 for layer, ratio in enumerate(listed[:count])]
    streams = keys.number(Key("hc_mult", 4))
    return Layers(per_layer=per_layer, around=("hyper_connections",), parts={
        "hyper_connections": {"around": {"kind": "hyper_connections", "streams": streams}}})


def kimi(keys: Keys, count: int) -> Layers:
    """Kimi-Linear and Kimi-K3: KDA and latent attention.

    linear_attn_config counts layers from 1.
    """
    config = keys.get("linear_attn_config")
    if not isinstance(config, dict):
        keys.fault("linear_attn_config", f"expected a table, found {show(config)}")
        return Layers()
    inner = keys.below("linear_attn_config", config)
    states = inner.numbers("kda_layers", 1, count) or []
    full = inner.numbers("full_attn_layers", 1, count)
    if full is not None and sorted(states + full) != list(range(1, count + 1)):
        inner.fault("kda_layers", f"expected each layer from 1 to {count} in kda_layers or full_attn_layers, once")
    width = inner.number(Key("head_dim", 128))
    linear = {"kind": "kda", "num_heads": inner.number(Key("num_heads")), "head_dim": width,
              "conv_kernel": inner.number(Key("short_conv_kernel_size", 4)), "forget_rank": width,
              "gate_rank": 0 if inner.flag(Key("use_full_rank_gate", False)) else width}
    letters = "".join("L" if layer + 1 in states else "F" for layer in range(count))
    block = keys.number(Key("attn_res_block_size", 0))
    around = {"attention_residuals": {"around": {"kind": "attention_residuals", "block_size": block,
                                                "num_layers": count}}} if block else {}
    return Layers(letters, None, linear if states else None, parts=around, around=tuple(around))
