"""Size of a token and a sequence in the KV cache of one accelerator."""
from collections import Counter

import msgspec

from simulator.domain.deployment import Deployment

# FlashInfer's sparse kernels, first on compute capability 10, keep plain fp8; all others take FlashMLA's packed format.
# Source: vLLM 0.32.0, vllm/platforms/cuda.py, _get_backend_priorities.
BLACKWELL = ("Blackwell", "Blackwell Ultra")


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
    layers = range(deployment.model.num_layers) if layers is None else layers
    ways = deployment.parallelism.tensor_parallel
    placed = Counter(mixer for layer in deployment.model.layers[layers.start:layers.stop] for mixer in layer.mixers)
    mixers = [(mixer.part.shard(ways), count) for mixer, count in placed.items()]
    return KvLayout(
        bytes_per_token=sum(count * token_bytes(deployment, mixer) for mixer, count in mixers),
        state_bytes_per_sequence=sum(count * mixer.state_bytes(deployment.activation_bytes) for mixer, count in mixers))


def page_bytes(deployment: Deployment, mixer, block_size: int) -> float:
    """Return the bytes of a block in one layer on one rank: of tokens, or a state."""
    mixer = mixer.shard(deployment.parallelism.tensor_parallel)
    return token_bytes(deployment, mixer) * block_size + mixer.state_bytes(deployment.activation_bytes)


def token_bytes(deployment: Deployment, mixer) -> float:
    """Return the bytes of a token in one layer with this mixer."""
    accelerator = deployment.accelerator
    is_plain = accelerator is not None and accelerator.architecture in BLACKWELL and accelerator.scaleup_bytes_per_s > 0
    return mixer.token_bytes(deployment.kv_cache_bytes, is_packed=not is_plain)
