"""What is asked of a scheduler class before there is a scheduler, and what one is built from."""
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from simulator.domain.kv_share import KvShare
from simulator.domain.layer_groups import GroupRules, LayerGroups
from simulator.domain.memory_reserve import MemoryReserve


class SchedulerFacts(msgspec.Struct, frozen=True):
    """What the engine knows of a scheduler before there is one.

    max_running : sequences in the running list, at most; None: unknown.
    max_batched_tokens : tokens in a batch, at most; 0: unknown.
    is_async : an iteration is scheduled while the one before it executes.
    speculative : SpeculativeParameters; None: no speculation.
    takes_stages : it can keep a batch in each of several pipeline stages.
    heeds_arrivals : with pipeline stages, a batch may be formed when a request comes while others are in flight, not
        only when one of these ends.
    why_no_async_stages : why it does not with `is_async`; empty: it does.
    takes_threads : several replicas may be served at once, for none writes what another reads and no Python decides.
    blocks_held_back : of num_gpu_blocks, KV blocks that no request gets.
    encodes : encoders compute the items of prompts where they are computed.
    preempts : who runs may lose its blocks, and be computed anew.
    draft_valid_rate : probability that the grammar of a request admits a draft.
    takes_reserved : it admits waiting requests that were given blocks, with their KV in them, before they came.
    takes_arrived : it admits requests that come with their KV, as kv_transfer.protocol = "simai" has it, whatever
        `why_no_tier` says.
    why_no_both : why its replicas cannot do whole requests; empty: they can.
    why_no_tier : why it cannot work with KV beyond its blocks, as that of a prefill replica; empty: it can.
    notices_when_forming : it looks for KV from elsewhere each time that it forms a batch, also while another executes.
    does_whole : its replicas of role "decode" can compute prompts, too.
    grouping : how layers of unlike kinds have block tables of their own; None: all layers share one.
    """

    max_running: int | None = None
    max_batched_tokens: int = 0
    is_async: bool = False
    speculative: Any = None
    takes_stages: bool = True
    heeds_arrivals: bool = False
    why_no_async_stages: str = "the stages already execute several batches at once"
    takes_threads: bool = False
    blocks_held_back: int = 0
    why_no_tier: str = "it asks nobody for KV beyond its blocks"
    grouping: GroupRules | None = None
    takes_reserved: bool = False
    takes_arrived: bool = False
    why_no_both: str = ""
    notices_when_forming: bool = False
    does_whole: bool = True
    encodes: bool = False
    draft_valid_rate: float = 1.0
    preempts: bool = True


class MemoryNeeds(msgspec.Struct, frozen=True):
    """What the plan of an accelerator's memory must know of a scheduler.

    max_num_batched_tokens : tokens in a batch, at most; activations are sized for them.
    max_num_seqs : sequences in a batch, at most; sampler and recurrent states are sized for them.
    share : KvShare, by which the engine counts KV blocks; None: vLLM's, of gpu_memory_utilization.
    reserve : MemoryReserve of its version; None: the newest vLLM's.
    has_old_kernels : whether it runs the kernels of vLLM 0.10.
    adapter_bytes : room for adapters beside the weights, on a rank that holds all layers.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    share: KvShare | None = None
    reserve: MemoryReserve | None = None
    has_old_kernels: bool = False
    adapter_bytes: float = 0.0


class KVPlan(msgspec.Struct, frozen=True):
    """The KV cache that a scheduler is asked to make.

    num_blocks, block_size : usable blocks, the null block not counted, and tokens in each.
    content : the texts of the requests.
    enable_prefix_caching : prompts may find blocks that others left behind.
    with_identity : which block is which can be observed.
    with_tables : somebody looks at block tables; else what can be observed are the decisions alone.
    layer_groups : LayerGroups whose tokens are kept in blocks of their own; None: all layers share one block table.
    max_model_len : longest text, prompt and output, in tokens.
    tier : KVTier beyond the blocks; None: there is none.
    """

    num_blocks: int
    block_size: int
    content: Any
    enable_prefix_caching: bool
    with_identity: bool
    with_tables: bool = True
    layer_groups: LayerGroups | None = None
    max_model_len: int = 0
    tier: Any = None


class ReplicaContext(msgspec.Struct, frozen=True):
    """One replica, as its scheduler sees it.

    kv : the replica's KVCache.
    requests, demands : structured arrays (n,), `records.REQUEST` and `DEMAND`. True output lengths are not here.
    max_model_len : longest text, prompt and output, in tokens.
    prompts_use_outputs : some prompt contains what another request generates.
    enable_prefix_caching : prompts may find blocks that others left behind.
    fast_forward : advance decoding sequences in bulk where that changes no result.
    num_stages : pipeline stages, each with a batch of its own.
    tier : KVTier beyond the replica's blocks; None: there is none.
    seed : of every random stream.
    request_ids, labels : names of the requests, and those behind the codes in `demands`, as Workload has them.
    items : simulator.domain.items.Items, images and the like in prompts; None: nobody has any.
    encoded_tokens : int64 (n,), embeddings that encoders have computed for each request; who encodes adds to it.
    grammar_drafts : GrammarDrafts, which drafts grammars admit, and counts the others; None: all.
    fetches_items : other replicas have encoded all items, and they are fetched instead.
    """

    kv: Any
    requests: np.ndarray
    demands: np.ndarray
    max_model_len: int
    prompts_use_outputs: bool
    enable_prefix_caching: bool
    fast_forward: bool = True
    num_stages: int = 1
    tier: Any = None
    request_ids: Any = ()
    labels: Mapping = {}
    seed: int = 0
    items: Any = None
    encoded_tokens: np.ndarray | None = None
    grammar_drafts: Any = None
    fetches_items: bool = False
