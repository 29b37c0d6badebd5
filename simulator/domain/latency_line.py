"""Keys of policies that predict latencies by a line, and the targets that they compare them with."""
from typing import Annotated

import msgspec
from msgspec import Meta

PriceUs = Annotated[float, Meta(ge=0, le=1e9)]
BoundMs = Annotated[float, Meta(gt=0, le=1e9)]


class LatencyLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of the line in `signals/predicted`, and targets.

    The targets hold for requests without an SLO class, and for classes that lack them.
    """

    ttft_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time to first token of requests with a class without one"))] = 500.0
    tpot_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time per output token of requests with a class without one"))] = 50.0
    base_us: Annotated[PriceUs, Meta(description="time of an iteration")] = 5000.0
    per_sequence_us: Annotated[PriceUs, Meta(description="time per request that waits or runs")] = 10.0
    per_prefill_token_us: Annotated[PriceUs, Meta(description="time per prompt token")] = 20.0
