"""What a token and a sequence occupy in the KV cache of one accelerator."""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.layer_spec import LatentAttention

# An indexer keeps its keys in fp8, with one float32 scale for 128 elements (DeepSeek-V3.2, vLLM's indexer cache).
INDEXER_BYTES_PER_ELEMENT = 1 + 4 / 128
# vLLM puts layers of unlike kind into groups of one size, the smaller kind's count, or the larger's where that is at
# most a quarter more, and pads the last group (vllm/v1/core/kv_cache_utils.py).
GROUP_SIZE_SLACK = 1.25


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on one accelerator, for the layers of one pipeline stage."""

    full_bytes_per_token: float         # layers whose KV cache grows with the context
    sliding_bytes_per_token: float      # layers that need only the last `window` tokens
    window: int                         # 0: no such layers
    state_bytes_per_sequence: float     # recurrent state of linear-attention layers

    @property
    def bytes_per_token(self) -> float:
        """Bytes of one token in all layers.

        An engine with one block table counts a token in every layer for as long as its sequence lives: exact up to
        `window` tokens of context; beyond, vLLM's hybrid allocator would free the sliding layers' old blocks.
        """
        return self.full_bytes_per_token + self.sliding_bytes_per_token

    def request_bytes(self, num_tokens: int, block_size: int, max_num_batched_tokens: int) -> float:
        """Return the bytes of a request, as vLLM's start-up check counts them.

        Sliding layers hold the window, the tokens of one iteration, and one block because a window seldom begins at a
        block's edge (SlidingWindowSpec.max_memory_usage_bytes in vllm/v1/kv_cache_interface.py).
        """
        blocks = -(-num_tokens // block_size)
        reach = min(self.window - 1 + max_num_batched_tokens, num_tokens)
        sliding_blocks = min(-(-reach // block_size) + 1, blocks)
        return block_size * (blocks * self.full_bytes_per_token + sliding_blocks * self.sliding_bytes_per_token)


def kv_layout(deployment: Deployment, layers: range | None = None) -> KvLayout:
    """Return the layout for `layers`, by default all.

    KV heads are split over tensor-parallel ranks and repeated where there are fewer heads than ranks; the latent of MLA
    is whole on every rank. Recurrent state is kept in the dtype of activations (vLLM: mamba_cache_dtype = "auto").
    """
    model, tensor = deployment.model, deployment.parallelism.tensor_parallel
    layers = range(model.num_layers) if layers is None else layers
    kinds = model.layer_types[layers.start:layers.stop]
    full, sliding = _padded(kinds.count("full_attention"), kinds.count("sliding_attention"))
    state = model.linear_attention.shard(tensor).state_elements if model.linear_attention else 0
    return KvLayout(
        full_bytes_per_token=full * _token_bytes(deployment, model.attention),
        sliding_bytes_per_token=sliding * _token_bytes(deployment, model.windowed_attention),
        window=model.sliding_attention.window if sliding else 0,
        state_bytes_per_sequence=kinds.count("linear_attention") * state * deployment.activation_bytes)


def _token_bytes(deployment: Deployment, attention) -> float:
    """Return the bytes of one token in one layer on one rank."""
    stored = attention.shard(deployment.parallelism.tensor_parallel).kv_elements_per_token * deployment.kv_cache_bytes
    if isinstance(attention, LatentAttention) and attention.indexer:
        stored += attention.indexer.head_dim * INDEXER_BYTES_PER_ELEMENT
    return stored


def _padded(full: int, sliding: int) -> tuple[int, int]:
    """Return the counts of full and sliding layers, padded to whole groups."""
    if not full or not sliding:
        return full, sliding
    small, large = sorted((full, sliding))
    size = large if large < small * GROUP_SIZE_SLACK else small
    return -(-full // size) * size, -(-sliding // size) * size
