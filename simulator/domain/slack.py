"""Schema of [cluster.gateway_queue.slack]: the rest of a request's target when it is served at once."""
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Milliseconds = Annotated[float, Meta(gt=0, le=1e9)]


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The latency of requests of one size."""

    prompt_tokens: Annotated[Count, Meta(description="prompt tokens of a request")]
    output_tokens: Annotated[Count, Meta(description="output tokens of a request")]
    latency_ms: Annotated[Milliseconds, Meta(description=(
        "mean latency at a replica, end to end; where ttft_ms alone is the target, to the first token"))]


class SlackRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Slack of a waiting request, [cluster.gateway_queue.slack].

    slack = target - latency in the profile - time since its arrival at the queue; the row of the profile that is
    nearest in log2 counts, of several the last. The target is tpot_ms x output tokens + ttft_ms, or ttft_ms, or tpat_ms
    x (prompt + output tokens), or e2el_ms. Output tokens are the predicted ones, without a prediction max_tokens.
    Source: rankImpl of vllm-project/aibrix at 6baddd3a (pkg/plugins/gateway/queue/slo_queue.go), where each deployment
    has a profile of its own, and others pass a request without a replica that has room; here one profile counts for
    all replicas, and saturation alone holds requests back.
    """

    profile: Annotated[tuple[LatencyRow, ...], Meta(min_length=1, description="sizes of requests with their latency")]
    ttft_ms: Annotated[Milliseconds | None, Meta(description=(
        "target of the time to first token; beside tpot_ms a part of that target"))] = None
    tpot_ms: Annotated[Milliseconds | None, Meta(description="target of the time per output token")] = None
    tpat_ms: Annotated[Milliseconds | None, Meta(description=(
        "target of the end-to-end latency per token of prompt and output"))] = None
    e2el_ms: Annotated[Milliseconds | None, Meta(description="target of the end-to-end latency")] = None

    def __post_init__(self):
        given = {name for name in ("ttft_ms", "tpot_ms", "tpat_ms", "e2el_ms") if getattr(self, name) is not None}
        if len(given) != 1 and given != {"ttft_ms", "tpot_ms"}:
            raise ValueError("give one target of ttft_ms, tpot_ms, tpat_ms and e2el_ms, or ttft_ms beside tpot_ms; "
                             f"there {'are ' + ', '.join(sorted(given)) if given else 'is none'}")

    def slack_ms(self, latency_ms, prompt_tokens, output_tokens):
        """Return the slack of requests at their arrival, an array of doubles.

        latency_ms, prompt_tokens, output_tokens : arrays of doubles, one number for each request.
        """
        if self.tpot_ms is not None:
            target_ms = self.tpot_ms * output_tokens + (self.ttft_ms or 0.0)
        elif self.tpat_ms is not None:
            target_ms = self.tpat_ms * (prompt_tokens + output_tokens)
        else:
            target_ms = self.e2el_ms if self.ttft_ms is None else self.ttft_ms
        return target_ms - latency_ms
