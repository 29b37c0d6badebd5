"""The size of a KV cache, and the lines by which engines report it when they start."""
from collections.abc import Callable
from typing import NamedTuple


class KvSize(NamedTuple):
    """Of one engine: of a replica, or of each of its data-parallel ranks.

    num_blocks : the null block included. block_tokens : of a block of full attention. num_groups : of layers.
    request_blocks : of a request of max_model_len tokens; 0: nothing is kept in blocks.
    kv_bytes : of one accelerator; 0: unknown, the number of blocks being given.
    """

    num_blocks: int
    block_tokens: int
    num_groups: int
    request_blocks: int
    max_model_len: int
    kv_bytes: float = 0.0

    @property
    def concurrency(self) -> float:
        """Requests of max_model_len that fit at once."""
        return self.num_blocks / self.request_blocks if self.request_blocks else float("inf")

    @property
    def tokens(self) -> int:
        """Tokens in requests of max_model_len that fit at once; 0: no end."""
        return int(self.concurrency * self.max_model_len) if self.request_blocks else 0


Lines = Callable[[KvSize], list[str]]


def vllm_lines(size: KvSize) -> list[str]:
    """Return the line of vLLM 0.32 and 0.33.

    Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py (update_kv_cache_capacity).
    """
    return [f"GPU KV cache size: {size.tokens:,} tokens, Maximum concurrency for {size.max_model_len:,} tokens per "
            f"request: {size.concurrency:.2f}x"] if size.request_blocks else []


def old_vllm_lines(size: KvSize) -> list[str]:
    """Return the lines of vLLM 0.10; tokens: of all blocks, divided among the groups.

    Source: vLLM 0.10.1, vllm/v1/core/kv_cache_utils.py (get_kv_cache_config).
    """
    if not size.request_blocks:
        return []
    tokens = size.num_blocks // size.num_groups * size.block_tokens
    return [f"GPU KV cache size: {tokens:,} tokens",
            f"Maximum concurrency for {size.max_model_len:,} tokens per request: {size.concurrency:.2f}x"]


def sglang_lines(max_running_requests: int) -> Lines:
    """Return the function that gives the line of SGLang (managers/scheduler.py)."""
    return lambda size: [f"max_total_num_tokens={size.num_blocks * size.block_tokens}, "
                         f"max_running_requests={max_running_requests}, context_len={size.max_model_len}"]


def tensorrt_llm_lines(size: KvSize) -> list[str]:
    """Return the line of TensorRT-LLM; source: batch_manager/kvCacheManager.cpp."""
    tokens = size.num_blocks * size.block_tokens
    return [f"Allocated {size.kv_bytes / 2**30:.2f} GiB for max tokens in paged KV cache ({tokens})."
            ] if size.kv_bytes else []
