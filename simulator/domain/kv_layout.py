"""Size of a token and a sequence in the KV cache of one accelerator."""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.layer_spec import LatentAttention

# An indexer keeps its keys in fp8, with one float32 scale for 128 elements (DeepSeek-V3.2, vLLM's indexer cache).
INDEXER_BYTES_PER_ELEMENT = 1 + 4 / 128


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on one accelerator, for layers that share one block table.

    bytes_per_token : in all layers, for as long as its sequence lives, whatever their windows.
    state_bytes_per_sequence : recurrent state of linear-attention layers, beside the blocks.
    """

    bytes_per_token: float
    state_bytes_per_sequence: float


def kv_layout(deployment: Deployment, layers: range | None = None) -> KvLayout:
    """Return the layout for `layers`, by default all.

    Layers that have block tables of their own are in kv_groups.
    """
    model = deployment.model
    layers = range(model.num_layers) if layers is None else layers
    kinds = model.layer_types[layers.start:layers.stop]
    return KvLayout(
        bytes_per_token=(kinds.count("full_attention") * token_bytes(deployment, model.attention)
                         + kinds.count("sliding_attention") * token_bytes(deployment, model.windowed_attention)),
        state_bytes_per_sequence=kinds.count("linear_attention") * state_bytes(deployment))


def state_bytes(deployment: Deployment) -> float:
    """Return the bytes of a state in one layer of linear attention, on one rank.

    It is kept in the dtype of activations (vLLM: mamba_cache_dtype = "auto").
    """
    attention = deployment.model.linear_attention
    if attention is None:
        return 0.0
    return attention.shard(deployment.parallelism.tensor_parallel).state_elements * deployment.activation_bytes


def token_bytes(deployment: Deployment, attention) -> float:
    """Return the bytes of one token in one layer on one rank.

    KV heads are split over tensor-parallel ranks and repeated where there are fewer heads than ranks; the latent of MLA
    is whole on every rank.
    """
    stored = attention.shard(deployment.parallelism.tensor_parallel).kv_elements_per_token * deployment.kv_cache_bytes
    if isinstance(attention, LatentAttention) and attention.indexer:
        stored += attention.indexer.head_dim * INDEXER_BYTES_PER_ELEMENT
    return stored
