"""Arguments of SGLang's server that concern its scheduler, under SGLang's names."""
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from simulator.domain.kv_share import OF_VLLM
from simulator.latency.overheads.launches import EAGER_US_PER_LAYER, EagerUs
from simulator.scheduling.sglang_drafts import MIXING, SglangDrafts
from simulator.scheduling.sglang_tables import SglangGrammars, SglangLora

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]

ADVICE = {"passed over": "give more blocks, or lower max_tokens (with enable_prefix_caching = false, upstream_compat = "
                         "true no request is admitted that ignores its end token if the pool cuts its answer short)",
          ("passed over", "decode"): "no pages are left beside those that num_reserved_decode_tokens keeps free for "
                                     "each request, or a retracted request waits for them: give more blocks, or "
                                     "lower it",
          "left alone": "an unfinished prompt holds the KV that decoding requests need: give more blocks"}


class SglangParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SGLang's arguments.

    In [engine] page_size is block_size, max_total_tokens is num_gpu_blocks, and context_length is max_model_len.
    """

    ENGINE_DEFAULTS: ClassVar[dict] = {"gpu_memory_utilization": None}      # it has a share of its own
    WHY_NOT: ClassVar[dict[str, str]] = {
        "encoder": "SGLang encodes images before their prompts are cut, and its tree of prefixes distinguishes images "
                   "by content; that is not built",
        "cuda_graphs": "SGLang has cuda_graph_backend_decode and cuda_graph_backend_prefill, and "
                       "cuda_graph_max_bs_decode and cuda_graph_bs_decode for sizes"}

    max_running_requests: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "running requests; default: 512 for each longest text that the pool holds, from 2048 to 4096, and at most half "
        "the tokens of the pool; fewer where slots for recurrent states have no room for as many; without [hardware] "
        "256; with drafts 48"))] = None
    max_queued_requests: Annotated[Count | None, Meta(description=(
        "most waiting requests; further ones are refused. Absent: no limit"))] = None
    chunked_prefill_size: Annotated[Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None, Meta(
        extra={"unit": "tokens"}, description=(
            "prompt tokens in a batch, in chunks; -1 or 0: prompts are not cut; default: 2048 on cards below 20 GiB, "
            "4096 below 60, 8192 below 160, else 16384, divided among data-parallel ranks that share experts; without "
            "[hardware] 8192"))] = None
    max_prefill_tokens: Annotated[Tokens, Meta(description=(
        "prompt tokens after which a batch takes no other prompt"))] = 16384
    mem_fraction_static: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Meta(description=(
        "share of memory for weights and KV, activations have the rest; default: as the server derives it from the "
        "card's memory, chunked_prefill_size and ranks"))] = None
    prefill_max_requests: Annotated[Count | None, Meta(description="prompts in a batch; absent: no limit")] = None
    enable_mixed_chunk: Annotated[bool, Meta(description="prompts and decodes share a batch")] = False
    schedule_policy: Annotated[
        Literal["fcfs", "lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first", "random", "routing-key"],
        Meta(description=(
            "order of requests that wait for prefill: in order of arrival, longest cached prefix first, along the tree "
            "of prefixes, longest output first, highest response ratio first, fewest tokens to compute first, shuffled "
            "for each batch, most frequent routing key among running requests first"))] = "fcfs"
    routing_key: Annotated[Literal["session", "tenant", "slo_class"] | None, Meta(description=(
        "with schedule_policy routing-key: the label that clients send as x-smg-routing-key; default: session"))] = None
    schedule_conservativeness: Annotated[Annotated[float, Meta(ge=0.0, le=1e6)] | None, Meta(description=(
        "scales the tokens that running requests are still expected to need; default: 1.0, among data-parallel ranks "
        "that share experts 0.3"))] = None
    enable_priority_scheduling: Annotated[bool, Meta(description="requests have priorities")] = False
    schedule_low_priority_values_first: Annotated[bool, Meta(description="low values first; else high ones")] = False
    disable_priority_preemption: Annotated[bool, Meta(description=(
        "running requests are not put back for requests of better priority"))] = False
    priority_scheduling_preemption_threshold: Annotated[int, Meta(ge=-2**31, le=2**31 - 1, description=(
        "difference of priorities above which one request makes room for another"))] = 10
    retraction_policy: Annotated[Literal["default", "priority"], Meta(description=(
        "which requests are put back if KV runs out: fewest outputs and longest prompt first, or least preferred, "
        "then fewest outputs"))] = (
            "default")
    prefill_decode_interval: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "passes"}, description=(
        "passes without prompts after each batch with prompts"))] = 0
    prefill_decode_interval_min_bs: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "fewer running requests than this end these passes"))] = 0
    scheduler_recv_interval: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "passes"}, description=(
        "passes from one reading of requests that have arrived to the next; a batch with prompts counts as 1000, a "
        "server without work reads at once"))] = 1
    radix_eviction_policy: Annotated[
        Literal["lru", "lfu", "fifo", "mru", "filo", "priority", "slru"], Meta(description=(
            "order in which leaves of the tree are evicted"))] = "lru"
    disable_overlap_schedule: Annotated[bool, Meta(description=(
        "a batch is chosen when the one before it has ended, not while it executes"))] = False
    cuda_graph_backend_decode: Annotated[Literal["full", "disabled"], Meta(description=(
        "whole decodes as graphs, padded to SGLang's sizes where the backend times kernels; disabled: "
        "--disable-cuda-graph"))] = "full"
    cuda_graph_backend_prefill: Annotated[Literal["breakable", "disabled"] | None, Meta(description=(
        "graphs of batches with prompts, broken at attention, which hide the launches of kernels; disabled: the host "
        "launches kernels one by one, as SGLang before 0.5.10 does unless --enable-piecewise-cuda-graph is given; "
        "default: breakable, disabled if decodes have none"))] = None
    cuda_graph_max_bs_decode: Annotated[Count | None, Meta(extra={"unit": "sequences"}, description=(
        "largest decode graph, with SGLang's sizes below it; larger decodes have no graph; default: by card and ranks, "
        "8 to 512"))] = None
    cuda_graph_bs_decode: Annotated[Annotated[tuple[Count, ...], Meta(min_length=1, max_length=4096)] | None, Meta(
        extra={"unit": "sequences"}, description="sizes of decode graphs, in place of SGLang's")] = None
    eager_us_per_layer: Annotated[EagerUs | None, Meta(description=EAGER_US_PER_LAYER)] = None
    lora: Annotated[SglangLora | None, Meta(description="LoRA adapters; absent: none")] = None
    structured_outputs: Annotated[SglangGrammars | None, Meta(description=(
        "grammars that restrict outputs; absent: none"))] = None
    speculative: Annotated[SglangDrafts | None, Meta(description="speculative decoding; absent: none")] = None
    ignore_eos: Annotated[bool | tuple[str, ...], Meta(description=(
        "answers have max_tokens tokens whatever the model samples: all, or those of these SLO classes; running "
        "requests are then expected to need all of them"))] = False
    upstream_compat: Annotated[bool, Meta(description=(
        "repeat the faults of SGLang 0.5.23: hrrn's count of decodes, requests never admitted without a tree of "
        "prefixes, prompts beyond max_prefill_tokens, unfinished prompts that keep KV which decodes lack"))] = False

    @property
    def gives_graphs(self) -> bool:
        """Whether the experiment gives sizes of decode graphs."""
        return self.cuda_graph_bs_decode is not None or self.cuda_graph_max_bs_decode is not None

    def __post_init__(self):
        if self.schedule_policy == "routing-key" and self.routing_key is None:
            msgspec.structs.force_setattr(self, "routing_key", "session")


def faults(parameters, engine):
    """Return (key of [engine], fault) for arguments that contradict each other."""
    found, block_size = [], engine.block_size
    if engine.gpu_memory_utilization is not None:
        found.append(("gpu_memory_utilization", OF_VLLM.format("sglang", "mem_fraction_static")))
    if not parameters.enable_priority_scheduling:
        for key, plain in (("schedule_low_priority_values_first", False), ("disable_priority_preemption", False),
                           ("priority_scheduling_preemption_threshold", 10), ("retraction_policy", "default")):
            if getattr(parameters, key) != plain:
                found.append((key, f"{key} goes with enable_priority_scheduling = true"))
    elif parameters.disable_priority_preemption and parameters.priority_scheduling_preemption_threshold != 10:
        found.append(("priority_scheduling_preemption_threshold",
                      "expected none with disable_priority_preemption = true"))
    if parameters.routing_key is not None and parameters.schedule_policy != "routing-key":
        found.append(("routing_key",
                      f'goes with schedule_policy = "routing-key", found "{parameters.schedule_policy}"'))
    if parameters.enable_mixed_chunk and parameters.chunked_prefill_size <= 0:
        found.append(("enable_mixed_chunk", "expected false where prompts are not cut (chunked_prefill_size)"))
    if 0 < parameters.chunked_prefill_size < block_size:
        found.append(("chunked_prefill_size", f"expected at least block_size = {block_size}, found "
                      f"{parameters.chunked_prefill_size}: chunks end at whole pages"))
    if parameters.cuda_graph_backend_decode == "disabled" and parameters.cuda_graph_backend_prefill == "breakable":
        found.append(("cuda_graph_backend_prefill", 'expected "disabled" with cuda_graph_backend_decode = "disabled", '
                      'found "breakable": graphs of prompts alone are not built'))
    found += _graph_faults(parameters)
    found += _draft_faults(parameters)
    if parameters.prefill_decode_interval_min_bs and not parameters.prefill_decode_interval:
        found.append(("prefill_decode_interval_min_bs", "goes with prefill_decode_interval"))
    return found


def _graph_faults(parameters):
    """Return (key of [engine], fault) for sizes of graphs that act on nothing."""
    keys = ("cuda_graph_bs_decode", "cuda_graph_max_bs_decode")
    given = [key for key in keys if getattr(parameters, key) is not None]
    if given and parameters.cuda_graph_backend_decode == "disabled":
        return [(key, 'expected none with cuda_graph_backend_decode = "disabled"') for key in given]
    if len(given) == 2:
        return [("cuda_graph_max_bs_decode", "expected none with cuda_graph_bs_decode, of which it is the largest")]
    return []


def _draft_faults(parameters):
    """Return (key of [engine], fault) for drafts and what does not go with them."""
    given = parameters.speculative
    if given is None:
        return []
    found = []
    if not given.is_complete:
        found.append(("speculative.acceptance", "expected one that goes with the drafts that SGLang chooses for this "
                      "model: 5 steps with eagle_topk = 4, whose acceptance must be given, for Llama and Grok, else 3; "
                      "or num_steps"))
    if parameters.enable_mixed_chunk and given.method not in MIXING:
        found.append(("enable_mixed_chunk", f'expected false with speculative.method = "{given.method}", found true: '
                      "SGLang turns it off"))
    return found


def ignores_eos(parameters, labels):
    """Return for each SLO class whether its requests ignore the end token.

    The last entry is for requests without a class.
    """
    names = [str(name) for name in labels.get("slo_class", ())]
    if isinstance(parameters.ignore_eos, bool):
        return [parameters.ignore_eos] * (len(names) + 1)
    return [name in parameters.ignore_eos for name in names] + [False]


def label_faults(parameters, labels):
    """Return (key of [engine], fault) for unknown SLO classes."""
    if isinstance(parameters.ignore_eos, bool):
        return ()
    known = {str(name) for name in labels.get("slo_class", ())}
    return [("ignore_eos", f'no request is of SLO class "{name}"') for name in parameters.ignore_eos
            if name not in known]
