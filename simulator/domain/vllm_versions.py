"""The behaviour of each version of vLLM: a row per version without defaults.

No other module compares versions. A new version is a row of VERSIONS, for instance that of another version with
`_replace`. A row that lacks a field fails when it is imported. So does a table of facts by version without a row of a
version, unless `facts_of` names a version with a row that holds for it, too. Sources: vLLM at tags v0.10.1, v0.32.0 and
v0.33.0, in the files named below.
"""
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Literal, NamedTuple, TypeVar

Value = TypeVar("Value")


class VllmBehaviour(NamedTuple):
    """Behaviour of one version.

    Each field has a description in words, which `diff-versions` prints. Scheduler:
    vllm/v1/core/sched/scheduler.py. Arguments: vllm/engine/arg_utils.py, vllm/config.
    """

    release: Annotated[str, "the release that was modelled"]
    facts_of: Annotated[str, "version whose rows in tables of facts by version it shares; empty: its own"]
    # ---- arguments
    is_async_by_default: Annotated[bool, "async_scheduling is on by default"]
    takes_async_n_grams: Annotated[bool, "async_scheduling is on by default with drafts of n-grams, too"]
    takes_async_stages: Annotated[bool, "async_scheduling goes with pipeline stages"]
    reserves_full_text: Annotated[bool, "scheduler_reserve_full_isl is on by default"]
    flags: Annotated[frozenset[str], "of FLAGS: the keys that its server has a flag for"]
    gpu_memory_utilization: Annotated[float, "default of gpu_memory_utilization"]
    knows_largest_cards: Annotated[bool, "cards of 160 GiB and more have batch limits of their own"]
    gb10_is_small: Annotated[bool, "compute capability 12.1 has the batch limits of small cards"]
    images_on_flash: Annotated[bool, "image tokens see each other under FlashAttention on compute capability 10.x"]
    forces_latent_blocks: Annotated[bool, "latent attention has the blocks of one backend by card"]
    cuts_default_batch: Annotated[bool, "the default batch has no more tokens than max_num_seqs x max_model_len"]
    # ---- scheduler
    adapts_threshold: Annotated[bool, "long_prefill_token_threshold_adaptive has an effect"]
    cuts_lone_prompts: Annotated[bool, "long_prefill_token_threshold also holds while a prompt is alone"]
    skips_long_prompts: Annotated[bool, "without chunked prefill a prompt beyond the budget is passed over"]
    mends_victims: Annotated[bool, "a sequence preempted in an iteration returns its tokens to the budget"]
    avoids_extra_step: Annotated[bool, "with async_scheduling, no step is scheduled beyond a request's last token"]
    looks_ahead_at_admission: Annotated[bool, "slots of drafts are reserved at admission, too"]
    pads_admissions: Annotated[bool, "an admission of one token is padded with dummy drafts"]
    goes_on_after_own_victim: Annotated[bool, "by priority, a sequence that preempts itself takes no turn of others"]
    counts_idle_adapters: Annotated[bool, "adapters of running sequences without tokens in the batch count as used"]
    holds_prompts_alone: Annotated[bool, "prefill_schedule_interval also holds for an engine without ranks"]
    passes_over_items: Annotated[bool, "requests with a first image that does not fit are overtaken"]
    cuts_at_items: Annotated[bool, "disable_chunked_mm_input: a chunk that begins at an image waits for all of it"]
    skips_drafts: Annotated[bool, "EAGLE, MTP, draft models: no drafts where no sequence of a batch can verify them"]
    # ---- KV cache, encoders
    appends_unhashed: Annotated[bool, "freed blocks without a hash go to the tail of the free queue"]
    caches_at_end: Annotated[bool, "with drafts blocks are hashed when an iteration ends, also of the last one"]
    lacks_drafters: Annotated[tuple[str, ...], "methods of drafting that it does not have"]
    fits_drafts: Annotated[bool, "DFlash, DSpark: slots of drafts in max_num_batched_tokens limit running requests"]
    hashes_ahead: Annotated[bool, "with a drafter of the model the hash of a block covers the next token, too"]
    repeats_last_states: Annotated[bool, "the last state of a prompt cannot be hit while its sequence holds it"]
    keeps_before_junctions: Annotated[bool, "where hits lose a block to drafters, windows a block before are kept, too"]
    has_layer_groups: Annotated[bool, "block tables by kind of layer are modelled"]
    has_encoder: Annotated[bool, "an encoder cache by image is modelled"]
    has_connectors: Annotated[bool, "KV from elsewhere is modelled"]
    spares_null_block: Annotated[bool, "at start, blocks must suffice for the longest request and the null block"]
    checks_given_blocks: Annotated[bool, "a num_gpu_blocks_override that holds no request of max_model_len is refused"]
    counts_whole_requests: Annotated[bool, "the size of the KV cache is printed as tokens of the longest requests"]
    writes_delta_states: Annotated[bool, "FlashInfer's kernel of Gated DeltaNet writes states inside chunks"]
    offload_ranks_requests: Annotated[bool, "KV offload, lru: a request's chunks have its rank, the last goes first"]
    offload_offers_again: Annotated[bool, "KV offload: a preempted request offers all its chunks again"]
    offload_drafters: Annotated[tuple[str, ...], "KV offload: methods of drafting that drop the last chunk of a hit"]
    offload_needs_blocks: Annotated[bool, "KV offload: a chunk is not offered if any block that a hit needs was reused"]
    has_old_kernels: Annotated[bool, "experts: mxfp4 on Hopper runs on Marlin, blocks of fp8 are not divided"]
    # ---- CUDA graphs: vllm/config/compilation.py
    graph_mode: Annotated[str, "default mode of CUDA graphs"]
    graphs_count_drafts: Annotated[bool, "sizes of CUDA graphs grow with the tokens that a sequence verifies"]
    largest_graph: Annotated[int, "tokens of the largest CUDA graph"]
    largest_graph_newest: Annotated[int, "tokens of the largest CUDA graph on compute capability 10.x"]
    graph_step: Annotated[int, "tokens between sizes of CUDA graphs from 256 on"]
    widens_gpt_oss: Annotated[bool, "gpt-oss has graphs up to 1,024 tokens on every card"]
    # ---- data-parallel ranks: vllm/config/parallel.py, vllm/v1/engine/{core,core_client,coordinator}.py
    sync_interval: Annotated[int, "steps from one agreement of ranks in lock step to the next"]
    agrees_at_first: Annotated[bool, "ranks agree after the first step of a wave, too"]
    has_prefill_interval: Annotated[bool, "ranks in lock step have a prefill_schedule_interval"]
    router_sees_kv: Annotated[bool, "the front end weighs KV usage and requests in flight, and its scan rotates"]
    engines_start_waves: Annotated[bool, "an engine starts a wave with its first request; front ends send no message"]


# Keys that not each version has a flag for.
FLAGS = frozenset({
    "engine.max_num_scheduled_tokens", "engine.max_num_active_seqs", "engine.watermark",
    "engine.max_num_queued_reqs", "engine.max_num_queued_tokens",
    "engine.prefill_schedule_interval",
    "engine.kv_cache_memory_bytes", "engine.language_model_only", "engine.scheduler_reserve_full_isl",
    "engine.long_prefill_token_threshold_adaptive", "engine.prefix_match_unit",
    "topology.decode_context_parallel", "topology.prefill_context_parallel", "topology.cp_kv_cache_interleave_size",
    "topology.dcp_comm_backend", "engine.speculative.disable_eagle_block_drop",
    "engine.speculative.disable_lookahead_block_hashes", "engine.speculative.parallel_drafting",
    "kv_tiers.sync_load_budget_bytes"})

VERSIONS = {
    "0.10": VllmBehaviour(
        release="0.10.1", facts_of="", is_async_by_default=False, takes_async_n_grams=False, takes_async_stages=False,
        reserves_full_text=False,
        flags=frozenset(), gpu_memory_utilization=0.9, knows_largest_cards=False, gb10_is_small=False,
        images_on_flash=False, forces_latent_blocks=True, cuts_default_batch=False,
        adapts_threshold=False, cuts_lone_prompts=True, skips_long_prompts=True,
        mends_victims=False, avoids_extra_step=False, skips_drafts=False, looks_ahead_at_admission=False,
        pads_admissions=False,
        goes_on_after_own_victim=False, counts_idle_adapters=False, holds_prompts_alone=False,
        passes_over_items=False, cuts_at_items=False,
        appends_unhashed=True, caches_at_end=False, lacks_drafters=("dflash", "dspark", "suffix"), fits_drafts=False,
        hashes_ahead=False,
        repeats_last_states=False,
        keeps_before_junctions=False, has_layer_groups=False, has_encoder=False, has_connectors=False,
        offload_ranks_requests=False, offload_offers_again=False, offload_drafters=(), offload_needs_blocks=False,
        spares_null_block=False, checks_given_blocks=False, counts_whole_requests=False, writes_delta_states=False,
        has_old_kernels=True,
        graph_mode="piecewise", graphs_count_drafts=False, largest_graph=512, largest_graph_newest=512, graph_step=8,
        widens_gpt_oss=False, sync_interval=32, agrees_at_first=False, has_prefill_interval=False, router_sees_kv=False,
        engines_start_waves=False),
    "0.32": VllmBehaviour(
        release="0.32.0", facts_of="", is_async_by_default=True, takes_async_n_grams=False, takes_async_stages=True,
        reserves_full_text=True,
        flags=FLAGS - {"engine.speculative.disable_lookahead_block_hashes", "kv_tiers.sync_load_budget_bytes",
                       "engine.prefill_schedule_interval"},       # it has them for data-parallel ranks alone
        gpu_memory_utilization=0.92, knows_largest_cards=True, gb10_is_small=False,
        images_on_flash=False, forces_latent_blocks=False, cuts_default_batch=True,
        adapts_threshold=True, cuts_lone_prompts=False, skips_long_prompts=False,
        mends_victims=True, avoids_extra_step=True, skips_drafts=False, looks_ahead_at_admission=True,
        pads_admissions=True,
        goes_on_after_own_victim=False, counts_idle_adapters=False, holds_prompts_alone=False,
        passes_over_items=False, cuts_at_items=False,
        appends_unhashed=False, caches_at_end=False, lacks_drafters=(), fits_drafts=False, hashes_ahead=False,
        repeats_last_states=True,
        keeps_before_junctions=False, has_layer_groups=True, has_encoder=True, has_connectors=True,
        offload_ranks_requests=False, offload_offers_again=False, offload_drafters=("mtp",),
        offload_needs_blocks=False,
        spares_null_block=True, checks_given_blocks=True, counts_whole_requests=True, writes_delta_states=False,
        has_old_kernels=False,
        graph_mode="full_and_piecewise", graphs_count_drafts=True, largest_graph=512, largest_graph_newest=1024,
        graph_step=16, widens_gpt_oss=True, sync_interval=16, agrees_at_first=True, has_prefill_interval=True,
        router_sees_kv=True, engines_start_waves=False)}
VERSIONS["0.33"] = VERSIONS["0.32"]._replace(
    release="0.33.0", facts_of="0.32", flags=FLAGS,
    takes_async_n_grams=True, gb10_is_small=True, images_on_flash=True, skips_drafts=True,
    goes_on_after_own_victim=True, counts_idle_adapters=True,
    holds_prompts_alone=True, passes_over_items=True, cuts_at_items=True, caches_at_end=True, hashes_ahead=True,
    lacks_drafters=("medusa",), fits_drafts=True,
    keeps_before_junctions=True,
    offload_ranks_requests=True, offload_offers_again=True, offload_drafters=("eagle", "eagle3", "mtp"),
    offload_needs_blocks=True,
    writes_delta_states=True, repeats_last_states=False, engines_start_waves=True)
NEWEST = "0.33"
VllmVersion = Literal[tuple(VERSIONS)]


# Fields that no run reads: names, and features that a version without them refuses.
NOT_OF_RUNS = {"release", "facts_of", "flags", "has_layer_groups", "has_encoder", "has_connectors",
               "has_prefill_interval"}
_in_place: ContextVar[tuple[str, VllmBehaviour] | None] = ContextVar("_in_place", default=None)


def behaviour_of(version: str | None) -> VllmBehaviour:
    """Return the row of a version; None: of the newest.

    KeyError: no such version.
    """
    name = NEWEST if version is None else version
    other = _in_place.get()
    return VERSIONS[name] if other is None or other[0] != name else other[1]


@contextmanager
def behaving(version: str, **changes: object) -> Iterator[None]:
    """Let a version have other values of some fields inside the block.

    Other threads see the version as it is. Rows of conflicts name versions by VERSIONS: they stay as they are.
    """
    token = _in_place.set((version, VERSIONS[version]._replace(**changes)))
    try:
        yield
    finally:
        _in_place.reset(token)


def differing(old: str, new: str) -> list[str]:
    """Return the fields of runs in which two versions differ, in order."""
    return [name for name, before, after in zip(VllmBehaviour._fields, VERSIONS[old], VERSIONS[new], strict=True)
            if before != after and name not in NOT_OF_RUNS]


def description_of(field: str) -> str:
    """Return the meaning of a field in words."""
    return VllmBehaviour.__annotations__[field].__metadata__[0]


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
