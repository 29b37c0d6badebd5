"""Time a request and an iteration spend outside the accelerator."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_US = 1e12       # 11 days; the clock, int64 nanoseconds, counts 292 years
Microseconds = Annotated[float, Meta(ge=0, le=MAX_US)]


class HostParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time outside the accelerator, [latency.host]."""

    defaults: Annotated[Literal["vllm", "none"] | None, Meta(description=(
        "what stands in for zeros below: vLLM's host as it was measured, see domain/host_defaults.py; default: vllm "
        "where the scheduler is vllm and the backend sums up kernels that were measured"))] = None

    queue_base_us: Annotated[Microseconds, Meta(description=(
        "arrival to waiting queue, constant part; does not block the engine"))] = 0.0
    queue_per_prompt_token_us: Annotated[Microseconds, Meta(description="the same, per prompt token")] = 0.0
    output_token_us: Annotated[Microseconds, Meta(description=(
        "added to each observed token time; does not block the engine"))] = 0.0
    output_token_accumulates: Annotated[bool | None, Meta(description=(
        "output_token_us holds up all later tokens of the request, too: the k-th is seen k times as late; default: "
        "true where it is BLIS's alpha: under scheduler blis, or of coefficients that latency.backend has"))] = None
    completion_us: Annotated[Microseconds, Meta(description=(
        "last token to completion, as the client sees it; does not block the engine"))] = 0.0
    iteration_us: Annotated[Microseconds, Meta(description="added to every iteration; blocks the engine")] = 0.0
    sequence_us: Annotated[Microseconds, Meta(description="the same, for each sequence of an iteration")] = 0.0

    @property
    def shift_ns(self) -> int:
        """Return how much later a client sees a token than it leaves the engine.

        0 where the delay accumulates.
        """
        return 0 if self.output_token_accumulates else round(self.output_token_us * 1e3)
