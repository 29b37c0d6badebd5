"""Schema of [[cluster.fallbacks]]: pools to which a gateway sends the requests that another pool failed to serve."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Reason = Literal["rejected", "lost", "too_long"]
Name = Annotated[str, Meta(min_length=1)]
FAILED: tuple[Reason, ...] = ("rejected", "lost")       # for any request


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pools that take over from a pool that failed, [[cluster.fallbacks]].

    The gateway sends such a request on at once, as a new one: admission, router and caches decide anew, and tokens of
    the attempt before are void. Its client waits on: its deadline stays. With `[cluster.regions]` the home of a request
    sends it on once it has learnt of the failure, and chooses a region anew.
    Source: LiteLLM 1.110.2, fallbacks and context_window_fallbacks of its router.
    """

    of: Annotated[Name, Meta(description="name of the pool, or of the model it serves (pools.serves)")]
    to: Annotated[tuple[Name, ...], Meta(min_length=1, description=(
        "names of the pools, or models, that are tried in this order"))]
    on: Annotated[tuple[Reason, ...], Meta(min_length=1, description=(
        "failures after which the next one is tried. rejected: a gateway or a full queue of an engine refused the "
        "request; lost: it was lost with its replica; too_long: its prompt does not fit"))] = FAILED

    def __post_init__(self):
        if len(set(self.to) | {self.of}) <= len(self.to):
            raise ValueError(f'to: expected each name once, and not "{self.of}" itself')
        if len(set(self.on)) < len(self.on):
            raise ValueError("on: a failure is named twice")
