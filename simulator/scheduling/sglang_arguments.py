"""The arguments of SGLang's server that its scheduler has, under their names."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]

ADVICE = {"passed over": "give more blocks, or lower max_tokens (with enable_prefix_caching = false no request that "
                         "ignores its end token is admitted whose answer the pool cuts short)",
          "left alone": "an unfinished prompt holds the KV that those who decode would need: give more blocks"}


class SglangParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SGLang's arguments.

    page_size, max_total_tokens and context_length stand in [engine] as block_size, num_gpu_blocks and max_model_len.
    """

    max_running_requests: Annotated[int, Meta(ge=1, le=2**20, description="running requests")] = 256
    max_queued_requests: Annotated[Count | None, Meta(description=(
        "waiting requests; who comes beyond is refused. Absent: no limit"))] = None
    chunked_prefill_size: Annotated[int, Meta(ge=-1, le=2**31 - 1, description=(
        "tokens of prompts in a batch, in chunks; -1 or 0: prompts are not cut"))] = 8192
    max_prefill_tokens: Annotated[Tokens, Meta(description=(
        "tokens of prompts after which a batch takes no other prompt"))] = 16384
    prefill_max_requests: Annotated[Count | None, Meta(description="prompts in a batch; absent: no limit")] = None
    enable_mixed_chunk: Annotated[bool, Meta(description="prompts and decodes share a batch")] = False
    schedule_policy: Annotated[
        Literal["fcfs", "lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first"], Meta(description=(
            "order of the waiting queue: as they came, longest cached prefix first, along the tree of prefixes, "
            "longest output first, highest response ratio first, fewest tokens to compute first"))] = "fcfs"
    schedule_conservativeness: Annotated[float, Meta(ge=0.0, le=1e6, description=(
        "scales what running requests are expected to need still"))] = 1.0
    enable_priority_scheduling: Annotated[bool, Meta(description="requests have priorities")] = False
    schedule_low_priority_values_first: Annotated[bool, Meta(description="else high ones go first")] = False
    disable_priority_preemption: Annotated[bool, Meta(description=(
        "who runs is not put back for requests of better priority"))] = False
    priority_scheduling_preemption_threshold: Annotated[int, Meta(ge=-2**31, le=2**31 - 1, description=(
        "priorities must differ by more for one request to make room for another"))] = 10
    retraction_policy: Annotated[Literal["default", "priority"], Meta(description=(
        "who is put back where KV runs out: fewest outputs and longest prompt, or least preferred before that"))] = (
            "default")
    prefill_decode_interval: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "passes"}, description=(
        "passes without prompts after each batch with prompts"))] = 0
    prefill_decode_interval_min_bs: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "running requests below which these passes end"))] = 0
    radix_eviction_policy: Annotated[
        Literal["lru", "lfu", "fifo", "mru", "filo", "priority", "slru"], Meta(description=(
            "which leaf of the tree goes first"))] = "lru"
    disable_overlap_schedule: Annotated[bool, Meta(description=(
        "a batch is chosen when the one before it has ended, not while it executes"))] = False
    ignore_eos: Annotated[bool | tuple[str, ...], Meta(description=(
        "clients ask for max_tokens tokens whatever the model says: all, or those of these SLO classes; who runs is "
        "then expected to need all of them"))] = False


def faults(parameters, block_size):
    """Return (key of [engine], what is wrong with it) for what does not go together."""
    found = []
    if not parameters.enable_priority_scheduling:
        for key, plain in (("schedule_low_priority_values_first", False), ("disable_priority_preemption", False),
                           ("priority_scheduling_preemption_threshold", 10), ("retraction_policy", "default")):
            if getattr(parameters, key) != plain:
                found.append((key, f"{key} goes with enable_priority_scheduling = true"))
    elif parameters.disable_priority_preemption and parameters.priority_scheduling_preemption_threshold != 10:
        found.append(("priority_scheduling_preemption_threshold",
                      "expected none with disable_priority_preemption = true"))
    if parameters.enable_mixed_chunk and parameters.chunked_prefill_size <= 0:
        found.append(("enable_mixed_chunk", "expected false where prompts are not cut (chunked_prefill_size)"))
    if 0 < parameters.chunked_prefill_size < block_size:
        found.append(("chunked_prefill_size", f"expected at least block_size = {block_size}, found "
                      f"{parameters.chunked_prefill_size}: chunks end at whole pages"))
    if parameters.prefill_decode_interval_min_bs and not parameters.prefill_decode_interval:
        found.append(("prefill_decode_interval_min_bs", "goes with prefill_decode_interval"))
    return found


def ignores_eos(parameters, labels):
    """Return of each SLO class whether its requests ignore the end token.

    The last entry is for requests without a class.
    """
    names = [str(name) for name in labels.get("slo_class", ())]
    if isinstance(parameters.ignore_eos, bool):
        return [parameters.ignore_eos] * (len(names) + 1)
    return [name in parameters.ignore_eos for name in names] + [False]


def label_faults(parameters, labels):
    """Return (key of [engine], what is wrong with it) for unknown SLO classes."""
    if isinstance(parameters.ignore_eos, bool):
        return ()
    known = {str(name) for name in labels.get("slo_class", ())}
    return [("ignore_eos", f'no request is of SLO class "{name}"') for name in parameters.ignore_eos
            if name not in known]
