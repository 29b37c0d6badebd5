"""Names of modules in checkpoints for the matrices of parts of layers, behind "model.layers.N."."""

HEADS = ("lm_head", "model.lm_head", "embed_out", "output_layer")
# Matrices that no checkpoint quantises: of indexers, of low ranks beside attention.
ALWAYS_PLAIN = ("index_heads", "index_pool")
# Modules of parts; the first is the usual one, others count where the table of quantisation has their first word.
STATES = ("linear_attn", "mamba", "mixer", "self_attn", "attention")
PARENTS = {
    "attention": ("self_attn", "mixer", "attn", "attention"),
    "mlp": ("mlp", "mixer", "feed_forward", "ffn", "shared_mlp"),
    "shared_experts": ("mlp.shared_experts", "mlp.shared_expert", "block_sparse_moe.shared_experts",
                       "feed_forward.shared_expert", "mixer.shared_experts", "ffn.shared_experts", "share_expert",
                       "shared_mlp", "mlp.shared_mlp"),
    "experts": ("mlp.experts.0", "experts.0", "block_sparse_moe.experts.0", "feed_forward.experts.0", "mixer.experts.0",
                "ffn.experts.0", "moe"),
    "around": ("self_attn",),
}
LEAVES = {
    "q": ("q_proj", "qkv_proj", "query_key_value"), "k": ("k_proj", "qkv_proj", "query_key_value"),
    "v": ("v_proj", "qkv_proj", "query_key_value"), "o": ("o_proj", "out_proj", "dense"),
    "q_a": ("q_a_proj", "wq_a"), "q_b": ("q_b_proj", "wq_b"), "kv_a": ("kv_a_proj_with_mqa",), "kv_b": ("kv_b_proj",),
    "kv": ("wkv",), "o_a": ("wo_a",), "o_b": ("wo_b",),
    "index_q": ("indexer.wq_b", "index_q_proj"), "index_k": ("indexer.wk", "index_k_proj"),
    "index_heads": ("indexer.weights_proj",), "index_pool": ("indexer.weights_proj",),
    "compress_kv": ("compressor.wkv",), "compress_gate": ("compressor.wgate",),
    "index_kv": ("indexer.compressor.wkv",), "index_gate": ("indexer.compressor.wgate",),
    "in_qkv": ("in_proj_qkv", "in_proj_qkvz", "qkv_proj", "in_proj"), "in_z": ("in_proj_z", "in_proj_qkvz", "in_proj"),
    "in_ba": ("in_proj_b", "in_proj_ba"), "in": ("in_proj",), "out": ("out_proj", "o_proj"),
    "forget_a": ("f_a_proj",), "forget_b": ("f_b_proj",), "forget": ("f_proj",), "in_beta": ("b_proj",),
    "gate_a": ("g_a_proj",), "gate_b": ("g_b_proj",),
    "latent_in": ("fc1_latent_proj", "routed_expert_down_proj"),
    "latent_out": ("fc2_latent_proj", "routed_expert_up_proj"),
}
GATES = {"attention": ("g_proj", "gate_proj", "output_gate")}
NETWORK_LEAVES = {"gate": ("gate_proj", "w1", "gate_up_proj"), "up": ("up_proj", "w3", "gate_up_proj", "fc1"),
                  "down": ("down_proj", "w2", "fc2")}


def modules_of(part: str, matrix: str, backend: str, text: str) -> list[str]:
    """Return the names that a matrix may have in a checkpoint, the usual one first.

    backend : of a mixer. text : the table of quantisation; names with other words are left out.
    """
    parents = STATES if backend == "state" and part == "attention" else PARENTS[part]
    if matrix in NETWORK_LEAVES and part != "attention":
        leaves = NETWORK_LEAVES[matrix]
    elif matrix.startswith("latent_"):
        parents, leaves = ("mixer", "mlp", "block_sparse_moe"), LEAVES[matrix]
    else:
        leaves = GATES[part] if matrix == "gate" and part in GATES else LEAVES.get(matrix, (matrix,))
    found = [parents[0], *(each for each in parents[1:] if each.partition(".")[0] in text)]
    kept = [leaves[0], *(each for each in leaves[1:] if each in text)]
    return [f"{parent}.{leaf}" for parent in found for leaf in kept]
