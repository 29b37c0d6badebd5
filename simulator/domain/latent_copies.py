"""Copies of latent attention's up-projection in 16 bit, which decodes multiply by, beside a quantised one.

Source: vLLM 0.33, vllm/model_executor/layers/attention/mla_attention.py (split_kv_b_proj,
process_weights_after_loading): W_UK and W_UV are taken out of kv_b; views of it where it is in 16 bit, else copies.
"""
from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer
from simulator.domain.matrix_formats import layer_formats

KV_UP = "attention.kv_b"


def copied_bytes(deployment: Deployment, layers: range) -> float:
    """Return the bytes of the copies on one rank in a stage's layers."""
    elements, stored = 0.0, deployment.quantization
    if stored is None:
        return elements
    if stored.matrices:
        elements = sum(each.count * _elements(deployment, each.layer) for each in layer_formats(
            deployment.model.layers, stored.matrices, layers) if KV_UP in each.formats)
    elif stored.scope == "linear":
        elements = sum(_elements(deployment, deployment.model.layers[layer]) for layer in layers
                       if not stored.leaves("attention", layer))
    return elements * deployment.activation_bytes


def _elements(deployment: Deployment, layer: Layer) -> float:
    return sum(placed.part.shard(deployment.parallelism.tensor_parallel).absorbed_elements for placed in layer.mixers)
