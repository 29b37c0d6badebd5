"""How items are encoded apart: what the engine is told of encode pools."""
from typing import Any

import msgspec


class EncodePool(msgspec.Struct, frozen=True):
    """Equal replicas that encode.

    name : of the pool.
    model : label of the requests whose items it encodes; None: of all.
    replicas : how many.
    embedding_ns : what an embedding takes. iteration_ns : what a batch takes besides.
    max_embeddings : that a batch computes. max_jobs : items in a batch. cache_embeddings : that are kept.
    embedding_bytes : of an embedding on its way.
    cost_per_hour : of a replica, in any currency. node : type of node, or accelerator, that it runs on; "": not said.
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


class EncodePlan(msgspec.Struct, frozen=True):
    """How items are encoded.

    pools : EncodePool, in the order in which replicas are numbered.
    router, router_parameters : a Router subclass and its `Parameters`; to it an item is a request whose prompt has as
        many tokens as the item embeddings, and whose session is what the item shows.
    bytes_per_s : of the link of a replica. latency_ns : of each transfer, besides.
    """

    pools: tuple[EncodePool, ...]
    router: type
    router_parameters: Any
    bytes_per_s: float
    latency_ns: int
