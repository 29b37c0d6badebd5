"""The size of a LoRA adapter."""
from simulator.domain.layer_spec import MultiHeadAttention
from simulator.domain.model_spec import ModelSpec

BYTES = 2           # of a weight: adapters are kept in 16 bits


def adapter_bytes(model: ModelSpec, rank: int) -> int:
    """Return the bytes of an adapter of all projections of attention and MLP.

    Each has r (in + out) weights.     Source: Hu et al., LoRA, arXiv 2106.09685, section 4.1.

    Raises
    ------
    ValueError
        Layers other than multi-head attention with a dense MLP: which of their projections an adapter has is not known.
    """
    whole, split = _widths(model)
    return BYTES * rank * (whole + split) * model.num_layers


def slot_bytes(model: ModelSpec, rank: int, tensor_parallel: int) -> float:
    """Return the bytes that a tensor-parallel rank keeps free for an adapter.

    Of a pair of matrices the one is split as the projection is, the other whole on every rank.
    Source: vllm/lora/layers/{column,row}_parallel_linear.py (create_lora_weights), fully_sharded_loras = False.

    Raises
    ------
    ValueError
        As `adapter_bytes`.
    """
    whole, split = _widths(model)
    return BYTES * rank * (whole + split / tensor_parallel) * model.num_layers


def _widths(model: ModelSpec) -> tuple[int, int]:
    """Return the widths of a layer's projections: (the hidden state, the part split over ranks)."""
    attention, mlp, hidden = model.attention, model.mlp, model.hidden_size
    if model.moe is not None or set(model.layer_types) != {"full_attention"} or not isinstance(
            attention, MultiHeadAttention):
        raise ValueError(f"lora.adapter_mb: needed for {model.name}: which projections of experts, latent, sliding or "
                         "linear attention its adapters have is not known")
    keys, values = attention.num_kv_heads * attention.head_dim, attention.num_kv_heads * attention.value_dim
    queries, outputs = attention.num_heads * attention.head_dim, attention.num_heads * attention.value_dim
    return (4 + mlp.num_matrices) * hidden, queries + keys + values + outputs + mlp.num_matrices * mlp.intermediate_size
