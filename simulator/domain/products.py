"""The matrix products of a model, as one tensor-parallel rank computes them."""
from typing import NamedTuple

from simulator.domain.layer_spec import GatedDeltaNet, LatentAttention, LightningAttention, Mamba2, Mlp
from simulator.domain.model_spec import ModelSpec
from simulator.domain.rank_weights import VOCAB_PADDING


class Product(NamedTuple):
    """A matrix product (T, k) x (k, n)."""

    name: str
    n: float
    k: float
    is_quantized: bool = True


def products_of(part, hidden: int, is_quantized: bool = True) -> list[Product]:
    """Return the matrix products of a part, as one rank computes them."""
    return [product._replace(is_quantized=is_quantized) for product in _products_of(part, hidden)]


def _products_of(part, hidden: int) -> list[Product]:
    if isinstance(part, Mlp):
        inter = part.intermediate_size
        return [Product("up_gate", (part.num_matrices - 1) * inter, hidden), Product("down", hidden, inter)]
    if isinstance(part, LatentAttention):
        heads = part.num_heads
        return [Product("q_up", heads * part.head_dim, part.query_rank or hidden),
                Product("latent_down", part.query_rank + part.kv_rank + part.rope_head_dim, hidden),
                Product("kv_up", heads * (part.nope_head_dim + part.value_head_dim), part.kv_rank),
                Product("attention_out", hidden, heads * part.value_head_dim)]
    outputs = output_width(part)
    inputs = part.matrix_parameters(1) - outputs
    return [Product("qkv", inputs, hidden), Product("attention_out", hidden, outputs)]


def rotated_and_written(part) -> int:
    """Return the elements of a token that rotary embedding and KV write move."""
    rotated = part.num_heads * part.head_dim + part.num_kv_heads * part.head_dim
    return 2 * rotated + 2 * part.kv_elements_per_token


def normed_heads(part) -> int:
    """Return the elements of a token's queries and keys that have norms of their own."""
    if getattr(part, "qk_norm", "none") == "none":
        return 0
    return (part.num_heads + part.num_kv_heads) * part.head_dim


def output_width(part) -> int:
    """Return the width that the output projection of a token mixer reads."""
    if isinstance(part, GatedDeltaNet):
        return part.num_value_heads * part.value_head_dim
    if isinstance(part, LightningAttention | Mamba2):
        return part.num_heads * part.head_dim
    return part.num_heads * part.value_dim


def head_product(model: ModelSpec, tensor_parallel: int) -> Product:
    """Return the output head's product, the vocabulary padded as vLLM does."""
    rows = -(-model.vocab_size // VOCAB_PADDING) * VOCAB_PADDING / tensor_parallel
    return Product("lm_head", rows, model.hidden_size, is_quantized=False)
