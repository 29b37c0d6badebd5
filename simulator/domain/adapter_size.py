"""The size of a LoRA adapter."""
from simulator.domain.model_spec import ModelSpec

BYTES = 2           # of a weight: adapters are kept in 16 bits


def adapter_bytes(model: ModelSpec, rank: int, tensor_parallel: int = 1) -> float:
    """Return the bytes of an adapter of all projections of attention and MLP.

    Each has r (in + out) weights. Of a pair of matrices, tensor-parallel ranks split the one as the projection is, and
    each holds the other. Sources: Hu et al., LoRA, arXiv 2106.09685, section 4.1;
    vllm/lora/layers/{column,row}_parallel_linear.py (create_lora_weights), fully_sharded_loras = False.

    Raises
    ------
    ValueError
        Layers other than multi-head attention with a dense MLP: which of their projections an adapter has is not known.
    """
    mlp, widths = model.mlp, model.attention.lora_widths
    if model.moe is not None or set(model.layer_types) != {"full_attention"} or widths is None:
        raise ValueError(f"lora.adapter_mb: needed for {model.name}: which projections of experts, latent, sliding or "
                         "linear attention its adapters have is not known")
    whole = (widths[0] + mlp.num_matrices) * model.hidden_size
    split = widths[1] + mlp.num_matrices * mlp.intermediate_size
    return BYTES * rank * (whole + split / tensor_parallel) * model.num_layers
