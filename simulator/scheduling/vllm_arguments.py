"""The arguments of the scheduler `vllm`, what vLLM refuses to start with, and what helps where it cannot go on."""
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.scheduling.speculative import SpeculativeParameters

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class VllmParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's arguments. Source: vLLM 0.32.0 and 0.10.1, vllm/config/scheduler.py."""

    max_num_seqs: Annotated[int, Meta(ge=1, le=2**20, description="sequences in a batch")] = 256
    max_num_batched_tokens: Annotated[Tokens, Meta(description="tokens in a batch")] = 8192
    max_num_scheduled_tokens: Annotated[Tokens | None, Meta(description=(
        "token budget of an iteration; default max_num_batched_tokens"))] = None
    max_num_active_seqs: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "running sequences above which nothing is admitted; default max_num_seqs"))] = None
    enable_chunked_prefill: Annotated[bool, Meta(description="split prompts over iterations")] = True
    long_prefill_token_threshold: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "longest prompt chunk; 0: no limit"))] = 0
    long_prefill_token_threshold_adaptive: Annotated[bool, Meta(description=(
        "raise the threshold to budget // (running + waiting)"))] = False
    policy: Annotated[Literal["fcfs", "priority"], Meta(description=(
        "order of the waiting queue, choice of victims"))] = "fcfs"
    scheduler_reserve_full_isl: Annotated[bool | None, Meta(description=(
        "admit only what fits whole, not by its first chunk; default: true in 0.32, false in 0.10"))] = None
    watermark: Annotated[float, Meta(ge=0, le=1, description="share of blocks kept free at admission")] = 0.0
    async_scheduling: Annotated[bool | None, Meta(description=(
        "schedule an iteration while the one before it executes; default: true in 0.32, but for n-gram drafts"))] = None
    vllm_version: Annotated[Literal["0.10", "0.32"], Meta(description="whose behaviour")] = "0.32"
    speculative: Annotated[SpeculativeParameters | None, Meta(description="absent: no speculation")] = None


def completed(parameters: VllmParameters, topology) -> VllmParameters:
    """Return the arguments with the default of async_scheduling.

    vLLM 0.32 schedules asynchronously unless told otherwise, pipeline stages or not, but not with drafts of the n-gram
    proposer, which reserve no slots ahead. In 0.10 it is an option that is off. Source: vLLM 0.32.0,
    vllm/config/vllm.py, VllmConfig.__post_init__ with its newer model runner, the default; 0.10.1,
    vllm/config/scheduler.py.
    """
    if parameters.async_scheduling is not None:
        return parameters
    has_n_grams = parameters.speculative is not None and parameters.speculative.num_lookahead_tokens == 0
    return msgspec.structs.replace(parameters, async_scheduling=parameters.vllm_version == "0.32" and not has_n_grams)


# Source: vLLM 0.10.1, vllm/engine/arg_utils.py; so does the older model runner of 0.32, which nothing here calls for.
WHY_NO_ASYNC_STAGES = "vLLM 0.10 refuses it with them"


ADVICE = {
    "livelock": "give more blocks, lower max_num_seqs, or leave scheduler_reserve_full_isl on",
    "too large": "vLLM refuses to start with such a max_model_len: lower it or give more blocks",
    "passed over": "it needs more tokens in one iteration than the budget allows: raise max_num_batched_tokens",
}


def start_up_faults(parameters: VllmParameters, max_model_len: int | None) -> Iterator[tuple[str, str]]:
    """Yield what vLLM refuses at start-up: key, and what is wrong with it.

    Source: vllm-project/vllm, vllm/config/scheduler.py, SchedulerConfig.verify_max_model_len.
    """
    tokens, seqs = parameters.max_num_batched_tokens, parameters.max_num_seqs
    if tokens < seqs:
        yield "max_num_batched_tokens", f"expected at least max_num_seqs = {seqs}, found {tokens}"
    if max_model_len is not None and not parameters.enable_chunked_prefill and tokens < max_model_len:
        yield "max_num_batched_tokens", (
            f"expected at least max_model_len = {max_model_len}, since enable_chunked_prefill is false, found {tokens}")


def why_no_tier(parameters: VllmParameters) -> str:
    """Say why the scheduler cannot work with KV beyond its blocks; empty: it can."""
    unsettled = {'vllm_version = "0.10"': parameters.vllm_version != "0.32",
                 "async_scheduling = true": parameters.async_scheduling,
                 "speculative decoding": parameters.speculative is not None}
    found = [name for name, is_given in unsettled.items() if is_given]
    return f"its rules for KV from elsewhere are not settled with {' and '.join(found)}" if found else ""
