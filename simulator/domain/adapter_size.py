"""The size of a LoRA adapter."""
from simulator.domain.layer_list import Layer
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
    mixers = [mixer for layer in model.kinds for mixer in layer.mixers]
    is_known = all(mixer.kind == "full_attention" and mixer.part.lora_widths for mixer in mixers)
    if any(layer.moe for layer in model.kinds) or not is_known:
        raise ValueError(f"lora.adapter_mb: needed for {model.name}: which projections of experts, latent, sliding or "
                         "linear attention its adapters have is not known")
    return sum(len(numbers) * _layer_bytes(model, layer, rank, tensor_parallel)
               for layer, numbers in model.kinds.items())


def _layer_bytes(model: ModelSpec, layer: Layer, rank: int, tensor_parallel: int) -> float:
    widths = [mixer.part.lora_widths for mixer in layer.mixers]
    widths += [(mlp.num_matrices, mlp.num_matrices * mlp.intermediate_size) for mlp in layer.networks]
    whole, split = (sum(each) for each in zip(*widths, strict=True)) if widths else (0, 0)
    return BYTES * rank * (whole * model.hidden_size + split / tensor_parallel)
