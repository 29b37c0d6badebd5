"""The behaviour of each version of vLLM: a row per version without defaults.

No other module compares versions. A new version is a row of VERSIONS, for instance that of another version with
`_replace`. A row that lacks a field fails when it is imported. So does a table of facts by version without a row of a
version, unless `facts_of` names a version whose row holds for it, too. Sources: vLLM at tags v0.10.1, v0.32.0 and
v0.33.0, in the files named below.
"""
from typing import Literal, NamedTuple, TypeVar

Value = TypeVar("Value")


class VllmBehaviour(NamedTuple):
    """Behaviour of one version.

    Scheduler: vllm/v1/core/sched/scheduler.py. Arguments: vllm/engine/arg_utils.py, vllm/config.
    """

    release: str                        # the release that was modelled
    facts_of: str                       # version whose rows in tables of facts by version it shares; "": its own
    # ---- arguments
    is_async_by_default: bool           # async_scheduling
    takes_async_n_grams: bool           # async_scheduling by default with drafts that reserve no slots ahead, too
    takes_async_stages: bool            # async_scheduling with pipeline stages
    reserves_full_text: bool            # default of scheduler_reserve_full_isl
    flags: frozenset[str]               # of FLAGS: the keys that its server has a flag for
    # ---- scheduler
    adapts_threshold: bool              # heeds long_prefill_token_threshold_adaptive
    cuts_lone_prompts: bool             # long_prefill_token_threshold also holds while a prompt is alone
    skips_long_prompts: bool            # without chunked prefill a prompt beyond the budget is passed over
    mends_victims: bool                 # a victim of this iteration returns its tokens to the budget
    avoids_extra_step: bool             # with async_scheduling, no step is scheduled beyond a request's last token
    skips_drafts: bool                  # EAGLE, MTP, draft models: none where no sequence of a batch samples a token
    looks_ahead_at_admission: bool      # slots of drafts are reserved at admission, too
    pads_admissions: bool               # an admission of one token is padded with dummy drafts
    goes_on_after_own_victim: bool      # by priority: a sequence that preempts itself takes no one's turn
    counts_idle_adapters: bool          # adapters of running sequences without tokens in the batch count as used, too
    holds_prompts_alone: bool           # prefill_schedule_interval also holds for an engine without ranks
    passes_over_items: bool             # requests with a first item that does not fit are overtaken
    cuts_at_items: bool                 # disable_chunked_mm_input: a chunk that begins at an item waits for all of it
    # ---- KV cache, encoders
    appends_unhashed: bool              # freed blocks without a hash go to the tail of the free queue
    caches_at_end: bool                 # with drafts blocks are hashed when an iteration ends, also of the last one
    hashes_ahead: bool                  # with a drafter of the model a block's hash covers the next token, too
    repeats_last_states: bool           # the last state of a prompt cannot be hit while its sequence holds it
    has_layer_groups: bool              # block tables by kind of layer, as modelled
    has_encoder: bool                   # an encoder cache by item, as modelled
    has_connectors: bool                # KV from elsewhere, as modelled
    offload_ranks_requests: bool        # KV offload, lru: a running request's chunks have its rank, the last goes first
    offload_offers_again: bool          # KV offload: a preempted request offers all its chunks again
    offload_drafters: tuple[str, ...]   # KV offload: methods of drafting with which the last chunk of a hit is dropped
    offload_needs_blocks: bool          # KV offload: a chunk is not offered if any block that a hit needs was reused
    has_old_kernels: bool               # mxfp4 experts on Hopper run on Marlin, and are padded for it
    # ---- CUDA graphs: vllm/config/compilation.py
    graph_mode: str                     # default mode
    graphs_count_drafts: bool           # sizes grow with the tokens that a sequence verifies
    largest_graph: int                  # tokens of the largest batch
    largest_graph_newest: int           # largest_graph on compute capability 10.x
    graph_step: int                     # between sizes from 256 on
    # ---- data-parallel ranks: vllm/config/parallel.py, vllm/v1/engine/{core,core_client,coordinator}.py
    sync_interval: int                  # steps from one agreement of ranks in lockstep to the next
    agrees_at_first: bool               # ranks agree after the first step of a wave, too
    has_prefill_interval: bool          # prefill_schedule_interval
    router_sees_kv: bool                # the front end weighs KV usage and requests in flight, and its scan rotates
    engines_start_waves: bool           # an engine starts a wave with its first request; front ends send no message


# Keys that not each version has a flag for.
FLAGS = frozenset({
    "engine.max_num_scheduled_tokens", "engine.max_num_active_seqs", "engine.watermark",
    "engine.scheduler_reserve_full_isl", "engine.long_prefill_token_threshold_adaptive", "engine.prefix_match_unit",
    "topology.decode_context_parallel", "topology.prefill_context_parallel", "topology.cp_kv_cache_interleave_size",
    "topology.dcp_comm_backend", "engine.speculative.disable_eagle_block_drop",
    "engine.speculative.disable_lookahead_block_hashes"})

VERSIONS = {
    "0.10": VllmBehaviour(
        release="0.10.1", facts_of="", is_async_by_default=False, takes_async_n_grams=False, takes_async_stages=False,
        reserves_full_text=False,
        flags=frozenset(), adapts_threshold=False, cuts_lone_prompts=True, skips_long_prompts=True,
        mends_victims=False, avoids_extra_step=False, skips_drafts=False, looks_ahead_at_admission=False,
        pads_admissions=False,
        goes_on_after_own_victim=False, counts_idle_adapters=False, holds_prompts_alone=False,
        passes_over_items=False, cuts_at_items=False,
        appends_unhashed=True, caches_at_end=False, hashes_ahead=False, repeats_last_states=False,
        has_layer_groups=False, has_encoder=False, has_connectors=False,
        offload_ranks_requests=False, offload_offers_again=False, offload_drafters=(), offload_needs_blocks=False,
        has_old_kernels=True,
        graph_mode="piecewise", graphs_count_drafts=False, largest_graph=512, largest_graph_newest=512, graph_step=8,
        sync_interval=32, agrees_at_first=False, has_prefill_interval=False, router_sees_kv=False,
        engines_start_waves=False),
    "0.32": VllmBehaviour(
        release="0.32.0", facts_of="", is_async_by_default=True, takes_async_n_grams=False, takes_async_stages=True,
        reserves_full_text=True,
        flags=FLAGS - {"engine.speculative.disable_lookahead_block_hashes"},
        adapts_threshold=True, cuts_lone_prompts=False, skips_long_prompts=False,
        mends_victims=True, avoids_extra_step=True, skips_drafts=False, looks_ahead_at_admission=True,
        pads_admissions=True,
        goes_on_after_own_victim=False, counts_idle_adapters=False, holds_prompts_alone=False,
        passes_over_items=False, cuts_at_items=False,
        appends_unhashed=False, caches_at_end=False, hashes_ahead=False, repeats_last_states=True,
        has_layer_groups=True, has_encoder=True, has_connectors=True,
        offload_ranks_requests=False, offload_offers_again=False, offload_drafters=("mtp",),
        offload_needs_blocks=False,
        has_old_kernels=False,
        graph_mode="full_and_piecewise", graphs_count_drafts=True, largest_graph=512, largest_graph_newest=1024,
        graph_step=16, sync_interval=16, agrees_at_first=True, has_prefill_interval=True, router_sees_kv=True,
        engines_start_waves=False)}
VERSIONS["0.33"] = VERSIONS["0.32"]._replace(
    release="0.33.0", facts_of="0.32", flags=FLAGS,
    takes_async_n_grams=True, skips_drafts=True,
    goes_on_after_own_victim=True, counts_idle_adapters=True,
    holds_prompts_alone=True, passes_over_items=True, cuts_at_items=True, caches_at_end=True, hashes_ahead=True,
    offload_ranks_requests=True, offload_offers_again=True, offload_drafters=("eagle", "eagle3", "mtp"),
    offload_needs_blocks=True,
    repeats_last_states=False, engines_start_waves=True)
NEWEST = "0.33"
VllmVersion = Literal[tuple(VERSIONS)]


def behaviour_of(version: str | None) -> VllmBehaviour:
    """Return the row of a version; None: of the newest.

    KeyError: no such version.
    """
    return VERSIONS[NEWEST if version is None else version]


def complete(facts: dict[str, Value]) -> dict[str, Value]:
    """Return a table of facts by version, with the rows that versions share.

    ValueError: a version has no row in it, and shares none.
    """
    shared = {version: facts[row.facts_of] for version, row in VERSIONS.items() if row.facts_of in facts}
    facts = shared | facts
    missing = [version for version in VERSIONS if version not in facts]
    if missing:
        raise ValueError(f"vLLM {', '.join(missing)}: no row in a table of facts by version, which has {list(facts)}")
    return facts


def versions_that(quality: str) -> str:
    """Return the versions that have a quality, as a message names them.

    quality : a field of VllmBehaviour.
    """
    return " or ".join(f'"{version}"' for version, row in VERSIONS.items() if getattr(row, quality))
