"""[attention] of a model from its config.json, by kind."""
from simulator.config.huggingface import layers
from simulator.config.huggingface.keys import HEADS, KV_NAMES, Key, Keys

INDEXER, SPARSE, RATIO = "+indexer", "+sparse", "+ratio"        # facts of one layer, that a layout knows


def multi_head(keys: Keys, family) -> dict:
    """Read grouped-query attention."""
    known = len(keys.faults)
    heads = keys.number(family.heads)
    kv_heads = _kv_heads(keys, family) or heads
    if heads % kv_heads and len(keys.faults) == known:
        keys.fault(KV_NAMES, f"expected a divisor of the {heads} heads, found {kv_heads}")
    return {
        "kind": "multi_head",
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": layers.head_dim(keys, heads, family.head_dim),
        "qkv_bias": keys.flag(family.qkv_bias),
        "output_bias": keys.flag(family.output_bias),
        "qk_norm": family.qk_norm if keys.flag(family.qk_norm_key) else "none",
        "output_gate": keys.flag(family.output_gate),
        "head_gate": keys.flag(family.head_gate),
        "sinks": family.sinks,
    } | ({"reads_earlier_cache": True} if keys.get(layers.SHARED_CACHE) else {})


def encoder(keys: Keys, family) -> dict:
    """Read attention in both directions."""
    return multi_head(keys, family) | {"kind": "encoder"}


def _kv_heads(keys: Keys, family) -> int:
    if keys.flag(Key("multi_query", False)) and not keys.flag(Key("new_decoder_architecture", False)):
        return 1
    return keys.number(family.kv_heads)


def latent(keys: Keys, family) -> dict:
    """Read multi-head latent attention."""
    return {
        "kind": "multi_head_latent",
        "num_heads": keys.number(family.heads),
        "query_rank": keys.number(Key("q_lora_rank", 0)),
        "kv_rank": keys.number(Key("kv_lora_rank")),
        "nope_head_dim": keys.number(Key("qk_nope_head_dim")),
        "rope_head_dim": keys.number(Key("qk_rope_head_dim")),
        "value_head_dim": keys.number(Key("v_head_dim")),
    }


def gated_latent(keys: Keys, family) -> dict:
    """Read latent attention that may have a gate on its output."""
    gate = "full" if keys.flag(Key("mla_use_output_gate", False)) else "none"
    return latent(keys, family) | {"output_gate": gate}


def latent_sparse(keys: Keys, family) -> dict:
    """Read latent attention with an indexer."""
    indexer = {"num_heads": keys.number(Key("index_n_heads")), "head_dim": keys.number(Key("index_head_dim")),
               "top_k": keys.number(Key("index_topk"))}
    return latent(keys, family) | {"indexer": indexer | keys.get(INDEXER, {})}


def with_value_head_dim(keys: Keys, family) -> dict:
    """Read attention with a separate head_dim of values."""
    attention = multi_head(keys, family)
    value_head_dim = keys.number(Key("v_head_dim", attention["head_dim"]))
    return attention | {"value_head_dim": value_head_dim % attention["head_dim"] and value_head_dim}


def gemma4(keys: Keys, family) -> dict:
    """Read the attention of full layers: own KV heads and head_dim, perhaps no values."""
    attention = multi_head(keys, family)
    return attention | {
        "num_kv_heads": keys.number(Key("num_global_key_value_heads", attention["num_kv_heads"])),
        "head_dim": keys.number(Key("global_head_dim", 512)),
        "key_is_value": keys.flag(Key("attention_k_eq_v", False))}


def block_sparse(keys: Keys, family) -> dict:
    """Read MiniMax-M3's attention: block-sparse where the layout says so."""
    attention, sparse = multi_head(keys, family), keys.get("sparse_attention_config", {})
    if not keys.get(SPARSE):
        return attention
    inner = keys.below("sparse_attention_config", sparse)
    return attention | {
        "kind": "msa", "index_heads": inner.number(Key("sparse_num_index_heads")),
        "index_head_dim": inner.number(Key("sparse_index_dim")),
        "sparse_block": inner.number(Key("sparse_block_size", 128)),
        "top_k_blocks": inner.number(Key("sparse_topk_blocks"))}


def compressed(keys: Keys, family) -> dict:
    """Read DeepSeek-V4's attention, of the ratio that the layout gives."""
    ratio = keys.get(RATIO, 0)
    indexer = {"num_heads": keys.number(Key("index_n_heads")), "head_dim": keys.number(Key("index_head_dim")),
               "top_k": keys.number(Key("index_topk"))}
    return {
        "kind": "csa_hca", "num_heads": keys.number(HEADS), "head_dim": keys.number(Key("head_dim")),
        "rope_head_dim": keys.number(Key("qk_rope_head_dim")), "query_rank": keys.number(Key("q_lora_rank")),
        "output_rank": keys.number(Key("o_lora_rank")), "output_groups": keys.number(Key("o_groups")),
        "window": keys.number(Key("sliding_window", 128)), "ratio": ratio, "indexer": indexer if ratio == 4 else None}
