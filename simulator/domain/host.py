"""Time a request and an iteration spend outside the accelerator."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_US = 1e12       # 11 days; the clock, int64 nanoseconds, counts 292 years
Microseconds = Annotated[float, Meta(ge=0, le=MAX_US)]
ServiceMicroseconds = Annotated[float, Meta(ge=0, le=1e9)]


class HostParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time outside the accelerator, [latency.host].

    Requests share the front end, answers do not: streaming a token out takes `output_token_us`, and slows no arriving
    request. By default nothing is shared: no such price of a request is published for any engine version; bursts of
    chats to vLLM 0.11 suggest 5 to 16 ms each.
    """

    defaults: Annotated[Literal["vllm", "none"] | None, Meta(description=(
        "values used for zeros below: vllm: vLLM's host as it was measured, see domain/host_defaults.py; default: vllm "
        "where the backend sums up kernels that were measured and the scheduler is vllm, sglang or tensorrt_llm, of "
        "the last two the front end alone"))] = None

    front_end_us: Annotated[ServiceMicroseconds, Meta(description=(
        "time of an API server process per request, before queue_base_us: rendering, checking, tokenizing; concurrent "
        "requests share the processes, so that none of many is done before nearly all are"))] = 0.0
    front_end_per_prompt_token_us: Annotated[ServiceMicroseconds, Meta(description=(
        "time of an API server process per prompt token"))] = 0.0
    api_server_count: Annotated[Annotated[int, Meta(ge=1, le=64)] | None, Meta(description=(
        "processes that share the requests of a replica; default: one per data-parallel rank, as vLLM's; 1 without "
        "data_parallel"))] = None
    queue_base_us: Annotated[Microseconds, Meta(description=(
        "from arrival to waiting queue, constant part; requests wait in parallel; does not block the engine"))] = 0.0
    queue_per_prompt_token_us: Annotated[Microseconds, Meta(description=(
        "from arrival to waiting queue, per prompt token"))] = 0.0
    output_token_us: Annotated[Microseconds, Meta(description=(
        "added to each observed token time; does not block the engine"))] = 0.0
    output_token_accumulates: Annotated[bool | None, Meta(description=(
        "output_token_us also delays all later tokens of the request: the k-th is seen k times as late; default: true "
        "where it is BLIS's alpha: under scheduler blis, or of coefficients that latency.backend has"))] = None
    completion_us: Annotated[Microseconds, Meta(description=(
        "last token to completion, as the client sees it; does not block the engine"))] = 0.0
    iteration_us: Annotated[Microseconds, Meta(description="added to every iteration; blocks the engine")] = 0.0
    sequence_us: Annotated[Microseconds, Meta(description=(
        "added to an iteration for each of its sequences; blocks the engine"))] = 0.0

    @property
    def shift_ns(self) -> int:
        """Return the delay of a token from the engine to the client.

        0 where the delay accumulates.
        """
        return 0 if self.output_token_accumulates else round(self.output_token_us * 1e3)
