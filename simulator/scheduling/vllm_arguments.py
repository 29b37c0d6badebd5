"""Arguments of the scheduler `vllm`, the faults that vLLM refuses to start with, and advice for stalled replicas."""
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.encoder_profile import ItemLimits
from simulator.domain.items import Items
from simulator.domain.layer_groups import GivenGroup, GroupRules, LayerGroups
from simulator.domain.memory_reserve import RESERVES
from simulator.domain.vllm_versions import NEWEST, VllmVersion, behaviour_of, versions_that
from simulator.latency.overheads.capture import CudaGraphParameters
from simulator.scheduling.drafters import IN_ONE_PASS, OF_THE_MODEL, mask_slots
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm_tables import (
    WHY_NO_OLD_ENCODER,
    EncoderParameters,
    ItemParameters,
    KvRetentionParameters,
    LoraParameters,
    StructuredOutputParameters,
)

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
QueueLimit = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Retention = Annotated[int, Meta(ge=0, le=2**31 - 1)] | Literal["dense"]


class VllmParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's arguments.

    Source: vLLM 0.33.0, 0.32.0 and 0.10.1, vllm/config/scheduler.py.
    """

    max_num_seqs: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "sequences in a batch; default, as an API server of vllm_version takes it: 1024 on cards of 70 GiB and more "
        "but A100, else 256, and no more than max_num_batched_tokens; without [hardware] 256"))] = None
    max_num_batched_tokens: Annotated[Tokens | None, Meta(description=(
        "tokens in a batch; default, as an API server of vllm_version takes it: 16384 on cards of 160 GiB and more "
        "(0.10: 8192), 8192 from 70 GiB on but A100, else 2048; 256 for experts with deepep_low_latency among "
        "data-parallel ranks; at least max_model_len without enable_chunked_prefill, at most max_num_seqs x "
        "max_model_len; without [hardware] 8192"))] = None
    max_num_scheduled_tokens: Annotated[Tokens | None, Meta(description=(
        "token budget of an iteration; default max_num_batched_tokens"))] = None
    max_num_active_seqs: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "number of running sequences at which admission stops; default max_num_seqs"))] = None
    max_num_queued_reqs: Annotated[QueueLimit | None, Meta(extra={"unit": "requests"}, description=(
        "unfinished requests of an API server, over all ranks behind it, waiting or running; a request beyond them is "
        "refused (HTTP 503); default: no limit; from vllm_version 0.32 on"))] = None
    max_num_queued_tokens: Annotated[QueueLimit | None, Meta(extra={"unit": "tokens"}, description=(
        "prompt tokens of the unfinished requests of an API server that have no output yet, over all ranks behind it, "
        "from which on it refuses requests (HTTP 503); whole prompts count until the first token; default: no limit; "
        "from vllm_version 0.32 on"))] = None
    enable_chunked_prefill: Annotated[bool, Meta(description="split prompts over iterations")] = True
    long_prefill_token_threshold: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "longest prompt chunk; 0: no limit"))] = 0
    long_prefill_token_threshold_adaptive: Annotated[bool, Meta(description=(
        "raise the threshold to budget // (running + waiting)"))] = False
    prefill_schedule_interval: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "iterations"}, description=(
        "while a request decodes, and unless requests are left behind for want of room, prompts are computed only in "
        "iterations at this interval; from vllm_version 0.33 on; [engine.data_parallel] has its own for ranks in lock "
        "step"))] = 1
    policy: Annotated[Literal["fcfs", "priority"], Meta(description=(
        "order of the waiting queue, and choice of victims"))] = "fcfs"
    scheduler_reserve_full_isl: Annotated[bool | None, Meta(description=(
        "admit only requests with room for their whole text; default: true, in 0.10 false"))] = None
    kv_cache_memory_bytes: Annotated[Annotated[int, Meta(ge=1, le=2**50)] | None, Meta(description=(
        "size of the KV cache on each accelerator, in place of what gpu_memory_utilization leaves; default: that"
        ))] = None
    watermark: Annotated[float, Meta(ge=0, le=1, description="share of blocks kept free at admission")] = 0.0
    async_scheduling: Annotated[bool | None, Meta(description=(
        "schedule an iteration while the one before it executes; default: true, but in 0.32 not for n-gram drafts; in "
        "0.10 false"))] = None
    vllm_version: Annotated[VllmVersion, Meta(description="version of vLLM")] = NEWEST
    task: Annotated[Literal["generate", "pooling"], Meta(description=(
        "pooling: embedding, reranking and classification, vLLM's --runner pooling: a request is complete with its "
        "prompt's last chunk, without a token of output"))] = "generate"
    speculative: Annotated[SpeculativeParameters | None, Meta(description="speculative decoding; absent: none")] = None
    lora: Annotated[LoraParameters | None, Meta(description="LoRA; absent: a batch may use any adapters")] = None
    structured_outputs: Annotated[StructuredOutputParameters | None, Meta(description=(
        "grammars of structured outputs; absent: they cost nothing"))] = None
    kv_retention: Annotated[KvRetentionParameters | None, Meta(description=(
        "KV blocks held for programs of agents while tools run; absent: none"))] = None
    cuda_graphs: Annotated[CudaGraphParameters | None, Meta(description=(
        "CUDA graphs; absent: batches are not padded, except with a latency backend that timed kernels"))] = None
    encoder: Annotated[EncoderParameters | None, Meta(description="absent: items cost their tokens only")] = None
    limit_mm_per_prompt: Annotated[ItemParameters | None, Meta(description=(
        "items of a prompt, at most; absent: 999 of a kind"))] = None
    language_model_only: Annotated[bool, Meta(description=(
        "take text alone, and load no encoder; from vllm_version 0.32 on"))] = False
    skip_mm_profiling: Annotated[bool, Meta(description=(
        "leave the encoder out of the profile run, and its memory out of the plan"))] = False
    disable_hybrid_kv_cache_manager: Annotated[bool, Meta(description=(
        "keep the KV of sliding and chunked layers as if they attended to the whole context"))] = False
    prefix_cache_retention_interval: Annotated[Retention | None, Meta(extra={"unit": "tokens"}, description=(
        "from one place of a prompt whose windows and states are kept for others to the next; 0: only its end and "
        "where a shared prefix ends; dense: wherever a hit may end; default: 0"))] = None
    prefix_match_unit: Annotated[Tokens | None, Meta(extra={"unit": "tokens"}, description=(
        "tokens of the pieces in which prompts are looked up: with states of linear attention hits end inside blocks, "
        "which are copied; a divisor of the block sizes of all groups of layers; default: the largest one"))] = None
    kv_cache_groups: Annotated[tuple[GivenGroup, ...], Meta(description=(
        "layers with block tables of their own, in place of those of [model]; needs num_gpu_blocks"))] = ()

    @property
    def draft_valid_rate(self) -> float:
        """The probability that the grammar of a request admits a draft."""
        return self.structured_outputs.draft_valid_rate if self.structured_outputs is not None else 1.0

    @property
    def items(self) -> ItemLimits:
        """Items that prompts may have, and whether the profile run encodes them."""
        given = self.limit_mm_per_prompt or ItemParameters()
        images, videos = (0, 0) if self.language_model_only else (given.image, given.video)
        return ItemLimits(images, videos, not self.skip_mm_profiling)

    @property
    def grouping(self) -> GroupRules:
        """Rules by which layers have block tables of their own."""
        interval = self.prefix_cache_retention_interval
        return GroupRules(is_disabled=self.disable_hybrid_kv_cache_manager, given=self.kv_cache_groups,
                          writes_delta_states=behaviour_of(self.vllm_version).writes_delta_states,
                          retention_interval=None if interval == "dense" else interval or 0,
                          prefix_match_unit=self.prefix_match_unit,
                          num_drafts=self.speculative.num_tokens if self.speculative is not None else 0,
                          marked=self._marked)

    @property
    def _marked(self) -> str:
        """Layers of a drafter by which vLLM knows their groups.

        Source: vLLM 0.33.0, kv_cache_planning.py, get_global_kv_cache_groups; 0.32.0, kv_cache_utils.py,
        _annotate_eagle_groups.
        """
        behaviour = behaviour_of(self.vllm_version)
        if not drops_last_hit(self) or self.speculative.method not in behaviour.offload_drafters:
            return "none"
        return "all" if behaviour.hashes_ahead else "last"


# Source: vLLM 0.10.1, vllm/engine/arg_utils.py; the older model runner of 0.32, which is not modelled, refuses it too.
WHY_NO_ASYNC_STAGES = "vLLM 0.10 refuses it with them"


ADVICE = {
    "livelock": "give more blocks, lower max_num_seqs, or leave scheduler_reserve_full_isl on",
    "too large": "vLLM refuses to start with such a max_model_len: lower it or give more blocks",
    "passed over": "it needs more tokens in one iteration than the budget allows: raise max_num_batched_tokens",
}
TOO_MANY_AT_ONCE = (
    "in iterations of up to {budget:,} tokens its prompt needs {blocks} KV blocks, the replica has {num_blocks}; "
    "windows give blocks back only behind an iteration: lower max_num_batched_tokens, or give more blocks")


def start_up_faults(parameters: VllmParameters, engine) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for keys that vLLM refuses at start-up, or that conflict.

    engine : `simulator.config.experiment.Engine`.
    Source: vllm-project/vllm, vllm/config/scheduler.py, SchedulerConfig.verify_max_model_len.
    """
    tokens, seqs = parameters.max_num_batched_tokens, parameters.max_num_seqs
    max_model_len, num_gpu_blocks = engine.max_model_len, engine.num_gpu_blocks
    if parameters.encoder is not None and not behaviour_of(parameters.vllm_version).has_encoder:
        yield "encoder", WHY_NO_OLD_ENCODER
    yield from _method_faults(parameters)
    if parameters.draft_valid_rate < 1 and parameters.speculative is None:
        yield "structured_outputs.draft_valid_rate", (
            f"expected 1, found {parameters.draft_valid_rate}: no drafter; give [engine.speculative] beside it")
    for key in ("max_num_queued_reqs", "max_num_queued_tokens"):
        found = getattr(parameters, key)
        if found is not None and f"engine.{key}" not in behaviour_of(parameters.vllm_version).flags:
            yield key, (f"expected none, found {found}: vLLM {behaviour_of(parameters.vllm_version).release} has no "
                        "such argument")
    if parameters.speculative is not None and tokens <= mask_slots(parameters.speculative):
        yield "max_num_batched_tokens", (
            f"expected more than {mask_slots(parameters.speculative)}, the masks of a request's drafts, found {tokens}")
    if tokens < seqs:
        yield "max_num_batched_tokens", f"expected at least max_num_seqs = {seqs}, found {tokens}"
    if max_model_len is not None and not parameters.enable_chunked_prefill and tokens < max_model_len:
        yield "max_num_batched_tokens", (
            f"expected at least max_model_len = {max_model_len}, since enable_chunked_prefill is false, found {tokens}")
    sizes = parameters.cuda_graphs.capture_sizes if parameters.cuda_graphs is not None else ()
    if sizes and sizes[-1] > tokens:
        yield "cuda_graphs", (f"expected capture_sizes up to max_num_batched_tokens = {tokens}, which no batch "
                              f"exceeds, found {sizes[-1]}")
    if parameters.cuda_graphs is not None and parameters.cuda_graphs.memory_gib is not None:
        yield from _graph_faults(parameters, num_gpu_blocks)
    if parameters.kv_cache_memory_bytes is not None:
        yield from _size_faults(parameters, engine)
    yield from _encoder_faults(parameters)
    groups = parameters.kv_cache_groups
    if groups and num_gpu_blocks is None:
        yield "kv_cache_groups", "expected num_gpu_blocks beside them: the content of their blocks is unknown"
    if groups and parameters.disable_hybrid_kv_cache_manager:
        yield "disable_hybrid_kv_cache_manager", "expected false beside kv_cache_groups, found true"
    if any(group.kind == "chunked_attention" for group in groups) and len({group.block_size for group in groups}) > 1:
        yield "kv_cache_groups", "expected one block_size where a group is of chunked_attention, found several"


def _graph_faults(parameters: VllmParameters, num_gpu_blocks: int | None) -> Iterator[tuple[str, str]]:
    """Yield what does not go with `cuda_graphs.memory_gib`."""
    found = parameters.cuda_graphs.memory_gib
    if num_gpu_blocks is not None:
        yield "cuda_graphs.memory_gib", f"expected none beside num_gpu_blocks, found {found}: no KV blocks are counted"
    elif parameters.kv_cache_memory_bytes is not None:
        yield "cuda_graphs.memory_gib", (
            f"expected none beside kv_cache_memory_bytes, found {found}: nothing is taken off")
    elif not RESERVES[parameters.vllm_version].graph_layer_bytes:
        yield "cuda_graphs.memory_gib", (
            f"expected none, found {found}: vLLM {parameters.vllm_version} takes nothing off for CUDA graphs")


def _encoder_faults(parameters: VllmParameters) -> Iterator[tuple[str, str]]:
    """Yield keys of encoders that do not go together, or that this version lacks."""
    if parameters.language_model_only:
        if "engine.language_model_only" not in behaviour_of(parameters.vllm_version).flags:
            yield "language_model_only", f"vLLM {behaviour_of(parameters.vllm_version).release} has no such argument"
        for key in ("encoder", "limit_mm_per_prompt"):
            if getattr(parameters, key) is not None:
                yield key, "expected none beside language_model_only, which takes text alone"
    if parameters.skip_mm_profiling and parameters.items.is_text_only(None):
        yield "skip_mm_profiling", "expected false, found true: without images and videos no encoder is loaded"


def _size_faults(parameters: VllmParameters, engine) -> Iterator[tuple[str, str]]:
    """Yield what does not go with `kv_cache_memory_bytes`."""
    if "engine.kv_cache_memory_bytes" not in behaviour_of(parameters.vllm_version).flags:
        yield "kv_cache_memory_bytes", f"vLLM {behaviour_of(parameters.vllm_version).release} has no such argument"
    for key in ("num_gpu_blocks", "gpu_memory_utilization"):
        found = getattr(engine, key)
        if found is not None:
            yield key, f"expected none beside kv_cache_memory_bytes, found {found}: one of both sizes the KV cache"


def item_faults(parameters: VllmParameters, items: Items | None) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for conflicts with the items of the prompts.

    Source: vLLM 0.32.0, vllm/v1/core/encoder_cache_manager.py, where budgets of encoders are derived.
    """
    given, tokens = parameters.encoder, parameters.max_num_batched_tokens
    allowed = parameters.items.images + parameters.items.videos
    if items is not None and (most := int(np.diff(items.begins).max(initial=0))) > allowed:
        key = "language_model_only" if parameters.language_model_only else "limit_mm_per_prompt"
        yield key, f"expected room for the {most} items of a prompt of this workload, found {allowed}: vLLM refuses it"
    if given is None:
        return
    if items is None:
        yield "encoder", "expected none: no prompt of this workload has an image; see [workload.images]"
    elif given.disable_chunked_mm_input and items.largest > tokens:
        yield "encoder.disable_chunked_mm_input", (
            f"the largest item has {items.largest} tokens, more than max_num_batched_tokens = {tokens}, and could "
            "never be computed in one step; vLLM refuses to start")


def label_faults(parameters: VllmParameters, labels: Mapping) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for conflicts with the labels of the requests."""
    given = parameters.structured_outputs
    if parameters.draft_valid_rate < 1 and given.fraction == 0 and not len(labels.get("grammar", ())):
        yield "structured_outputs.draft_valid_rate", (
            f"expected 1, found {given.draft_valid_rate}: no request has a grammar; see fraction")


def group_faults(parameters: VllmParameters, layers: LayerGroups | None,
                 enable_prefix_caching: bool) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for conflicts with these groups of layers."""
    interval = parameters.prefix_cache_retention_interval
    if interval is not None and (layers is None or not enable_prefix_caching):
        why = "all layers share one block table" if enable_prefix_caching else "enable_prefix_caching is false"
        yield "prefix_cache_retention_interval", f"expected none, found {interval}: {why}, and nothing is left out"
    if parameters.prefix_match_unit is not None:
        yield from _unit_faults(parameters, layers, enable_prefix_caching)
    yield from _checkpoint_faults(parameters, enable_prefix_caching)
    yield from _hash_faults(parameters, enable_prefix_caching)
    if layers is None:
        return
    if not behaviour_of(parameters.vllm_version).has_layer_groups:
        yield "vllm_version", (
            f"expected {versions_that('has_layer_groups')}, or disable_hybrid_kv_cache_manager = true: the block "
            f"tables that {parameters.vllm_version} has for layers of several kinds are not built")
    if enable_prefix_caching and any(group.is_endless for group in layers.groups):
        yield "enable_prefix_caching", (
            "expected false, found true: hits beside a block that a sequence keeps for life, of index keys not pooled "
            "yet, are not built")
    if parameters.speculative is not None and enable_prefix_caching and layers.hits_end_inside:
        yield "speculative", (
            "expected none where hits end inside of blocks of states (prefix_match_unit, or blocks of several sizes): "
            "that is not built for drafts")
    elif enable_prefix_caching and drops_last_hit(parameters) and not hashes_ahead(parameters, True, False):
        yield from _drop_faults(parameters, layers)


def _drop_faults(parameters: VllmParameters, layers: LayerGroups) -> Iterator[tuple[str, str]]:
    """Yield layers of which the last block of a hit cannot be computed again.

    vLLM ends with an assertion where a group of chunks drops a block (ChunkedLocalAttentionManager).
    """
    marked = [group for group in layers.groups if group.has_drafter] or list(layers.groups)
    sizes = sorted({group.block_size for group in layers.groups})
    if any(group.kind == "chunked_attention" for group in marked):
        yield "speculative.method", (
            f'expected none of {", ".join(OF_THE_MODEL)}, found "{parameters.speculative.method}": the last block of a '
            "hit is computed again, and vLLM ends with an error where layers attend within chunks")
    if len(sizes) > 1:
        yield "speculative.method", (
            f'expected none of {", ".join(OF_THE_MODEL)}, or disable_eagle_block_drop, found '
            f'"{parameters.speculative.method}": the last block of a hit is computed again, which is not built for '
            f"blocks of {', '.join(map(str, sizes))} tokens")


def _checkpoint_faults(parameters: VllmParameters, enable_prefix_caching: bool) -> Iterator[tuple[str, str]]:
    """Yield checkpoints that have no effect."""
    steps = [group.checkpoint for group in parameters.kv_cache_groups if group.kind == "linear_attention"]
    for i, group in enumerate(parameters.kv_cache_groups):
        if group.checkpoint and not enable_prefix_caching:
            why = "enable_prefix_caching is false, and no state is kept for others"
        elif group.checkpoint and not all(steps):
            why = "other groups of linear_attention have none, and vLLM uses them only if all have"
        else:
            continue
        yield f"kv_cache_groups[{i}].checkpoint", f"expected 0, found {group.checkpoint}: {why}"


def _method_faults(parameters: VllmParameters) -> Iterator[tuple[str, str]]:
    """Yield methods of drafting that a version does not have, and keys that do not go with them."""
    version, method = parameters.vllm_version, parameters.speculative and parameters.speculative.method
    if method in behaviour_of(version).lacks_drafters:
        yield "speculative.method", f'expected another one, found "{method}": vLLM {version} does not have it'
    elif parameters.speculative and parameters.speculative.parallel_drafting and (
            "engine.speculative.parallel_drafting" not in behaviour_of(version).flags):
        yield "speculative.parallel_drafting", f"expected false, found true: vLLM {version} has no such argument"
    if method == "suffix" and parameters.async_scheduling:
        yield "async_scheduling", (
            'expected false with method = "suffix", found true: vLLM refuses it for drafts of its older model runner')


def _hash_faults(parameters: VllmParameters, enable_prefix_caching: bool) -> Iterator[tuple[str, str]]:
    """Yield keys about the last block of a hit that have no effect."""
    given, version = parameters.speculative, parameters.vllm_version
    for key in ("disable_eagle_block_drop", "disable_lookahead_block_hashes"):
        if given is None or not getattr(given, key):
            continue
        why = ""
        if f"engine.speculative.{key}" not in behaviour_of(version).flags:
            why = f"vLLM {version} has no such argument"
        elif given.method not in OF_THE_MODEL:
            why = f"only hits of {', '.join(OF_THE_MODEL)} are cut; method = {given.method or 'none'}"
        elif not enable_prefix_caching:
            why = "enable_prefix_caching is false, and nothing is found"
        elif key == "disable_lookahead_block_hashes" and given.disable_eagle_block_drop:
            why = "disable_eagle_block_drop is true, which disables these hashes, too"
        if why:
            yield f"speculative.{key}", f"expected false, found true: {why}"


def _unit_faults(parameters: VllmParameters, layers: LayerGroups | None,
                 enable_prefix_caching: bool) -> Iterator[tuple[str, str]]:
    """Yield what does not go with `prefix_match_unit`.

    Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py, resolve_kv_cache_block_sizes.
    """
    unit, version = parameters.prefix_match_unit, parameters.vllm_version
    sizes = sorted({group.block_size for group in layers.groups}) if layers is not None else []
    if "engine.prefix_match_unit" not in behaviour_of(version).flags:
        yield "prefix_match_unit", f'expected none, found {unit}: vLLM {version} has no such argument'
    elif not enable_prefix_caching:
        yield "prefix_match_unit", f"expected none, found {unit}: enable_prefix_caching is false, and nothing is found"
    elif layers is None:
        yield "prefix_match_unit", (
            f"expected none, found {unit}: all layers share one block table, and hits end with its blocks; vLLM takes "
            "their size alone there")
    elif len(layers.groups) == 1 and unit != sizes[0]:
        yield "prefix_match_unit", (
            f"expected none, or {sizes[0]}, the tokens of a block, found {unit}: all layers are in one group, and hits "
            "end with its blocks")
    elif any(size % unit for size in sizes):
        yield "prefix_match_unit", (
            f"expected a divisor of the block sizes of all groups of layers, {', '.join(map(str, sizes))}, "
            f"found {unit}")


def most_running(parameters: VllmParameters) -> int:
    """Return how many requests may run at a time.

    With DFlash and DSpark no more than the tokens of an iteration have slots of drafts for. Source: vLLM 0.33.0,
    vllm/config/vllm.py.
    """
    most, given = parameters.max_num_active_seqs or parameters.max_num_seqs, parameters.speculative
    if given is None or given.method not in IN_ONE_PASS or not behaviour_of(parameters.vllm_version).fits_drafts:
        return most
    return max(min(most, parameters.max_num_batched_tokens // max(given.num_lookahead_tokens, 1)), 1)


def drops_last_hit(parameters: VllmParameters) -> bool:
    """Return whether the last block of a hit in the prefix cache is recomputed.

    Drafters read the model's hidden states, which a cached block does not provide; DFlash's and DSpark's do so before
    0.33. Source: vLLM 0.33.0, 0.32.0 and 0.10.1, SpeculativeConfig.use_eagle and
    FullAttentionManager.find_longest_cache_hit.
    """
    given, behaviour = parameters.speculative, behaviour_of(parameters.vllm_version)
    methods = OF_THE_MODEL if behaviour.hashes_ahead else (*OF_THE_MODEL, *IN_ONE_PASS)
    return given is not None and given.method in methods and not given.disable_eagle_block_drop


def hashes_ahead(parameters: VllmParameters, enable_prefix_caching: bool, has_connector: bool,
                 modules: int = 1) -> int:
    """Return how many tokens behind a block its hash covers.

    A drafter of the model reads, for the last token of a block, the token behind it: with that token in the hash no
    block of a hit is computed again. MTP modules that draft in turn read as many tokens behind it as there are drafts.
    Source: vLLM 0.33.0, vllm/v1/core/kv_cache_utils.py.

    modules : that draft in turn.
    """
    covers = behaviour_of(parameters.vllm_version).hashes_ahead and enable_prefix_caching and not has_connector
    if not (covers and drops_last_hit(parameters)) or (
            parameters.speculative.disable_lookahead_block_hashes):
        return 0
    return parameters.speculative.num_tokens if modules > 1 else 1


def why_no_tier(parameters: VllmParameters, takes_drafts: bool = False) -> str:
    """Return why the scheduler cannot work with KV beyond its blocks; empty: it can.

    takes_drafts : the rules of the tier are settled with drafts.
    """
    version = parameters.vllm_version
    unsettled = {f'vllm_version = "{version}"': not behaviour_of(version).has_connectors,
                 "prefix_match_unit": parameters.prefix_match_unit is not None,
                 "speculative decoding": parameters.speculative is not None and not takes_drafts}
    found = [name for name, is_given in unsettled.items() if is_given]
    return f"its rules for KV from elsewhere are not settled with {' and '.join(found)}" if found else ""
