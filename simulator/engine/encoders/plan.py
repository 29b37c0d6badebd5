"""Settings of the encode pools, as the engine uses them."""
from collections.abc import Callable
from typing import Any

import msgspec


class EncodePool(msgspec.Struct, frozen=True):
    """Equal encoder replicas.

    name : of the pool.
    model : label of the the requests that it encodes for; None: of all models.
    replicas : their number.
    embedding_ns : time per embedding. iteration_ns : time per batch, added once.
    item_ns : called with Items, returns the time of each in ns, float64 (items,); None: they have no prices of their
        own. least_ns : time of a batch that computes any embeddings. notes : on these prices, for a reader.
    max_embeddings : per batch. max_jobs : items per batch. cache_embeddings : capacity of the cache.
    embedding_bytes : size of an embedding on the link.
    cost_per_hour : of a replica, in any currency. node : type of node, or accelerator, that it runs on; "": not given.
    region : number of its region, as in [cluster.regions]; 0 where there are none.
    """

    name: str
    model: str | None
    replicas: int
    embedding_ns: float
    iteration_ns: float
    max_embeddings: int
    max_jobs: int
    cache_embeddings: int
    embedding_bytes: float
    cost_per_hour: float = 0.0
    node: str = ""
    region: int = 0
    item_ns: Callable | None = None
    least_ns: float = 0.0
    notes: tuple[str, ...] = ()


class EncodePlan(msgspec.Struct, frozen=True):
    """Encode pools, the router among their replicas, and the links from them.

    pools : EncodePool, in the order in which replicas are numbered.
    router, router_parameters : a Router subclass and its `Parameters`; an item is routed like a
        request with as many prompt tokens as the item has embeddings, and the item's content as its session.
    bytes_per_s : of the link of a replica. latency_ns : added to each transfer.
    """

    pools: tuple[EncodePool, ...]
    router: type
    router_parameters: Any
    bytes_per_s: float
    latency_ns: int
