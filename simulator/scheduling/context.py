"""What a scheduler is given to work with."""
from dataclasses import dataclass

from simulator.workload.base import Workload


@dataclass(frozen=True)
class ReplicaContext:
    """One replica, as its scheduler sees it.

    kv : the replica's KVCache.
    workload : its `requests` and `demands` are the scheduler's to read; true output lengths are not its business.
    max_model_len : longest text, prompt and output, in tokens.
    enable_prefix_caching : prompts may find blocks that others left behind.
    fast_forward : advance decoding sequences in bulk where that changes no result.
    """

    kv: object
    workload: Workload
    max_model_len: int
    enable_prefix_caching: bool
    fast_forward: bool = True
