"""Schema of [cluster.routing.queue]."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1e6)]
Tokens = Annotated[int, Meta(ge=0, le=2**40)]
Orders = Literal["fcfs", "lcfs", "wspt"]
ORDERS = (
    "fcfs: the earliest arrival first, each request as if it had come priority_jump_s earlier; lcfs: the latest "
    "first, as if it had come priority_jump_s later; wspt: the largest (1 + priority_jump_s) / tokens of the prompt "
    "that no replica has cached. Requests with a larger strict_priority go before all others")


class QueueClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue of its own for some requests, [[cluster.routing.queue.classes]].

    Requests of an SLO class belong to the last of its queues with min_tokens <= tokens to prefill. The queues take
    turns by deficit round robin. A request costs its tokens to prefill. A queue that cannot pay for its first request
    gets `quantum` tokens when a round reaches it; after a request the same queue goes on as long as it can pay. If a
    round serves none, the fewest rounds after which one can pay are added to all. An empty queue loses its tokens.
    Source: ai-dynamo/dynamo, lib/kv-router/src/scheduling/policy_queue@0bebf6de.rs, later than 1.6.1.
    """

    slo_class: Annotated[str, Meta(description=(
        'SLO class of the requests; "": those of all classes without a queue of their own'))] = ""
    min_tokens: Annotated[Tokens, Meta(description="least uncached prompt tokens of the requests")] = 0
    order: Annotated[Orders | None, Meta(description=(
        "order of the requests; default: cluster.routing.queue.order"))] = None
    quantum: Annotated[Annotated[int, Meta(ge=1, le=2**40)], Meta(extra={"unit": "tokens"}, description=(
        "prompt tokens that a turn adds"))] = 8192
    threshold: Annotated[Share | None, Meta(extra={"unit": ""}, description=(
        "as cluster.routing.queue.threshold, which is the default"))] = None
    threshold_tokens: Annotated[Tokens | None, Meta(description=(
        "as cluster.routing.queue.threshold_tokens, which is the default"))] = None
    max_requests: Annotated[Tokens | None, Meta(extra={"unit": "requests"}, description=(
        "waiting requests per replica from which on others are refused; absent: no limit"))] = None
    max_prompt_tokens: Annotated[Tokens | None, Meta(description=(
        "prompt tokens of waiting requests, per replica, from which on others are refused; absent: no limit"))] = None
    max_cached_tokens: Annotated[Tokens | None, Meta(description=(
        "as max_prompt_tokens, of tokens that some replica had cached when they came"))] = None


class RouterQueueParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue in front of the router "dynamo", [cluster.routing.queue].

    A replica is busy if its requests have more uncached prompt tokens to prefill than a threshold. A request waits if
    all replicas are busy, or the share busy_ratio. Whenever a prefill ends, a request leaves or a replica starts,
    requests are routed, to any replica, busy ones too, until enough replicas are busy again.
    Source: queue of ai-dynamo-runtime 1.6.1, `SelectionService`, its decisions recorded; classes: ai-dynamo/dynamo,
    lib/kv-router/src/scheduling/policy@01690d42.rs and policy_config@0111b619.rs.
    """

    threshold: Annotated[Share | None, Meta(extra={"unit": ""}, description=(
        "tokens to prefill above which a replica is busy, in units of max_num_batched_tokens; absent: any number"
    ))] = None
    threshold_tokens: Annotated[Tokens | None, Meta(description=(
        "tokens to prefill above which a replica is busy; absent: any number"))] = None
    busy_ratio: Annotated[float, Meta(gt=0, le=1, description=(
        "share of the replicas that are busy from which on requests wait"))] = 1.0
    order: Annotated[Orders, Meta(description=ORDERS)] = "fcfs"
    classes: Annotated[tuple[QueueClass, ...], Meta(description="queues for some requests; empty: one for all")] = ()

    def __post_init__(self):
        if self.threshold is None and self.threshold_tokens is None and not self.classes:
            raise ValueError("expected threshold or threshold_tokens, found none: no replica would be busy")
        for one in self.classes:
            bounds = sorted(other.min_tokens for other in self.classes if other.slo_class == one.slo_class)
            if bounds[0] != 0 or len(set(bounds)) < len(bounds):
                raise ValueError(f'classes: expected different min_tokens from 0 on of slo_class "{one.slo_class}", '
                                 f"found {', '.join(map(str, bounds))}")
            if one.threshold is None and one.threshold_tokens is None and (
                    self.threshold is None and self.threshold_tokens is None):
                raise ValueError("classes: expected threshold or threshold_tokens in each, or in the queue: else no "
                                 "replica would be busy")
        if self.classes and not any(one.slo_class == "" for one in self.classes):
            raise ValueError('classes: expected one with slo_class = "", for all other requests')

    @property
    def lines(self) -> tuple[QueueClass, ...]:
        """Return the queues, with all defaults filled in."""
        return tuple(msgspec.structs.replace(
            one, order=one.order or self.order,
            threshold=self.threshold if one.threshold is None else one.threshold,
            threshold_tokens=self.threshold_tokens if one.threshold_tokens is None else one.threshold_tokens)
            for one in self.classes or (QueueClass(),))
