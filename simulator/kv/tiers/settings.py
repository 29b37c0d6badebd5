"""What a tier is built from."""
import msgspec


class Offloading(msgspec.Struct, frozen=True):
    """Host memory of one replica.

    policy : EvictionPolicy subclass.
    chunks : that fit.
    blocks_per_chunk : KV blocks of a chunk.
    store_threshold : how often a chunk must be offered before it is written; 0 and 1: at once.
    offload_prompt_only : outputs are not stored.
    """

    policy: type
    chunks: int
    blocks_per_chunk: int = 1
    store_threshold: int = 0
    offload_prompt_only: bool = True
