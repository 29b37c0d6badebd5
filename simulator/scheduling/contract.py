"""Class-level facts of a scheduler, needed before one is built, and the context that one is built from."""
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from simulator.domain.encoder_profile import ItemLimits
from simulator.domain.kv_share import KvShare, StatePool
from simulator.domain.kv_size import Lines
from simulator.domain.layer_groups import GroupRules, LayerGroups
from simulator.domain.memory_reserve import MemoryReserve


class SchedulerFacts(msgspec.Struct, frozen=True):
    """Facts about a scheduler that the engine needs before one is built.

    max_running : sequences in the running list, at most; None: unknown.
    max_batched_tokens : tokens in a batch, at most; 0: unknown.
    is_async : an iteration is scheduled while the one before it executes.
    speculative : SpeculativeParameters; None: no speculation.
    takes_stages : with pipeline stages, it keeps a batch in each stage.
    heeds_arrivals : with pipeline stages, a batch may be formed when a request arrives while others are in flight, not
        only when a batch ends.
    why_no_async_stages : why `is_async` excludes pipeline stages; empty: it does not.
    takes_threads : replicas may run in parallel threads: no replica writes data that another reads, and no Python runs.
    blocks_held_back : KV blocks of num_gpu_blocks that no request gets.
    encodes : encoders compute the items of prompts on the replica that computes the prompts.
    preempts : a running request may lose its blocks, and be recomputed.
    draft_valid_rate : probability that the grammar of a request admits a draft.
    takes_reserved : it admits waiting requests that got blocks, with their KV in them, before they arrived.
    takes_arrived : it admits requests that arrive with their KV, as with kv_transfer.protocol = "simai", whatever
        `why_no_tier` says.
    why_no_both : why its replicas cannot serve whole requests; empty: they can.
    why_no_tier : why it cannot work with KV beyond its blocks, such as that of a prefill replica; empty: it can.
    notices_when_forming : it checks for KV from elsewhere each time that it forms a batch, also while another executes.
    does_whole : its replicas of role "decode" can also compute prompts.
    refines_blocks : blocks of fp8 experts are divided until ranks can share an expert.
    grouping : rules by which layers of unlike kinds have block tables of their own; None: all layers share one.
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
    why_no_tier: str = "it requests no KV beyond its blocks"
    grouping: GroupRules | None = None
    takes_reserved: bool = False
    takes_arrived: bool = False
    why_no_both: str = ""
    notices_when_forming: bool = False
    does_whole: bool = True
    encodes: bool = False
    draft_valid_rate: float = 1.0
    preempts: bool = True
    refines_blocks: bool = False

    @property
    def slack_tokens(self) -> int:
        """Tokens of drafts for which a request may hold KV blocks behind its text."""
        return 2 * (self.speculative.num_tokens + self.speculative.num_lookahead_tokens) if self.speculative else 0


class MemoryNeeds(msgspec.Struct, frozen=True):
    """Facts about a scheduler that the plan of an accelerator's memory needs.

    max_num_batched_tokens : tokens in a batch, at most; activations are sized for them.
    max_num_seqs : sequences in a batch, at most; sampler and recurrent states are sized for them.
    share : KvShare, the engine's rule for counting KV blocks; None: vLLM's, by gpu_memory_utilization.
    reserve : MemoryReserve of its version; None: that of the newest vLLM.
    has_old_kernels : whether it runs the kernels of vLLM 0.10.
    copies_latent_up : whether decodes of latent attention multiply by 16-bit copies of a quantised projection.
    adapter_bytes : room for adapters beside the weights, on a rank that holds all layers.
    batches_in_flight : batches at a time; windows keep the tokens of all until they are over.
    spared_blocks : blocks that the engine's start check counts beside those of the longest request.
    why_not_few : why the engine does not start where a given num_gpu_blocks holds no request of max_model_len; empty:
        it starts.
    lines : the engine's report of its KV cache; None: unknown.
    states : StatePool, the engine's rule for recurrent states; None: one for each of max_num_seqs.
    items : ItemLimits, by which the engine's profile run encodes images or videos; None: it encodes none.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    share: KvShare | None = None
    reserve: MemoryReserve | None = None
    has_old_kernels: bool = False
    copies_latent_up: bool = False
    adapter_bytes: float = 0.0
    batches_in_flight: int = 1
    spared_blocks: int = 0
    why_not_few: str = ""
    lines: Lines | None = None
    states: StatePool | None = None
    items: ItemLimits | None = None


class KVPlan(msgspec.Struct, frozen=True):
    """Parameters of the KV cache of a replica.

    num_blocks, block_size : usable blocks, the null block not counted, and tokens in each.
    content : the texts of the requests.
    enable_prefix_caching : prompts may reuse blocks that other requests left behind.
    with_identity : the identity of blocks can be observed.
    with_tables : block tables are observed; else only decisions can be observed.
    layer_groups : LayerGroups with block tables of their own; None: all layers share one block table.
    max_model_len : longest text, prompt and output, in tokens.
    tier : KVTier beyond the blocks; None: there is none.
    retention : domain.kv_retention.Retention of blocks held for programs; None: none are held.
    draft_modules : MTP modules that draft in turn; 1: one module, another drafter, or none.
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
    retention: Any = None
    draft_modules: int = 1


class ReplicaContext(msgspec.Struct, frozen=True):
    """One replica, as its scheduler sees it.

    kv : the replica's KVCache.
    requests, demands : structured arrays (n,), `records.REQUEST` and `DEMAND`. True output lengths are not here.
    max_model_len : longest text, prompt and output, in tokens.
    prompts_use_outputs : some prompt contains the output of another request.
    enable_prefix_caching : prompts may reuse blocks that other requests left behind.
    fast_forward : advance decoding sequences in bulk where that changes no result.
    num_stages : pipeline stages, each with a batch of its own.
    tier : KVTier beyond the replica's blocks; None: there is none.
    seed : seed of every random stream.
    request_ids, labels : names of the requests, and of the codes in `demands`, as Workload has them.
    items : simulator.domain.items.Items, such as images in prompts; None: no request has any.
    encoded_tokens : int64 (n,), embeddings that encoders have computed per request; schedulers that encode add to it.
    grammar_drafts : GrammarDrafts, which decides which drafts grammars admit, and counts the others; None: all.
    fetches_items : other replicas have encoded all items, which are fetched instead.
    behind_server : prompts pass through the engine's server, which refuses those that leave no room for a token.
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
    behind_server: bool = False
