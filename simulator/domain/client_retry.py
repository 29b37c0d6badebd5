"""Schema of [workload.client_retry]: clients that send a failed request again."""
from typing import Annotated, Literal

from msgspec import Meta

from simulator.domain.guards import MAX_S, Retry

Reason = Literal["timeout", "rejected", "lost"]
Positive = Annotated[float, Meta(gt=0, le=MAX_S)]


class ClientRetry(Retry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients that send a failed request again, [workload.client_retry].

    Retry k, from 0, waits min(backoff_s x factor^k, max_s), times a factor drawn from 1 - jitter to 1 + jitter. A
    request that is sent again arrives at the gateway as new: admission, router and caches decide anew.
    Source: attempts, backoff_s, factor and max_s as OpenAI's Python client 1.109 (openai/_constants.py); the budget as
    Beyer et al., "Site Reliability Engineering", chapter 21, "Handling Overload": a retry only while retries are less
    than a share of all requests.
    """

    attempts: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "times that a client sends a request again, at most"))] = 2
    backoff_s: Annotated[float, Meta(ge=0, le=MAX_S, description="wait before the first retry")] = 0.5
    factor: Annotated[float, Meta(ge=1, le=1000, description="growth of the wait from one retry to the next")] = 2.0
    max_s: Annotated[float, Meta(ge=0, le=MAX_S, description="longest wait, jitter aside")] = 8.0
    timeout_s: Annotated[Positive | None, Meta(description=(
        "time after which a client without a deadline in the workload gives an attempt up; absent: it never does. Each "
        "attempt has the whole time"))] = None
    on: Annotated[tuple[Reason, ...], Meta(min_length=1, description=(
        "ends of an attempt after which the client sends the request again. timeout: its client gave it up; rejected: "
        "a gateway or a full queue of an engine refused it; lost: it was lost with its replica"))] = (
            "timeout", "rejected", "lost")
    budget_share: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(extra={"unit": "share"}, description=(
        "largest share of retries among the requests sent by all clients; a retry above it is not sent; absent: no "
        "budget"))] = None
    budget_window_s: Annotated[Positive | None, Meta(description=(
        "time over which requests and retries are counted for budget_share; absent: since the start"))] = None

    def __post_init__(self):
        if self.budget_window_s is not None and self.budget_share is None:
            raise ValueError("budget_window_s takes budget_share")
        if len(set(self.on)) < len(self.on):
            raise ValueError("on: an end is named twice")
