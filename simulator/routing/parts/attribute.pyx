"""Reported numbers of a replica, by name."""
from typing import Annotated, Literal

from msgspec import Meta

AttributeName = Annotated[Literal[
    "in_flight", "in_flight_tokens", "waiting", "running", "waiting_prefill_tokens", "running_prefill_tokens",
    "preemptions", "kv_usage", "num_gpu_blocks", "cache_hit_rate", "max_num_seqs"], Meta(description=(
        "number of a replica: requests in flight and their prompt tokens, on the gateway's own account; requests that "
        "wait or run, prompt tokens that they still compute, preemptions so far, share of KV blocks used, KV blocks, "
        "hit rate of the prefix cache so far, most requests that run at once, as the replica reports"))]
_CODES = {"in_flight": IN_FLIGHT, "in_flight_tokens": IN_FLIGHT_TOKENS, "waiting": WAITING, "running": RUNNING,
          "waiting_prefill_tokens": WAITING_PREFILL, "running_prefill_tokens": RUNNING_PREFILL,
          "preemptions": PREEMPTIONS, "kv_usage": KV_USAGE, "num_gpu_blocks": NUM_BLOCKS, "cache_hit_rate": HIT_RATE,
          "max_num_seqs": MAX_RUNNING}


cdef Attribute attribute_named(str name, View view) except *:
    cdef Attribute kind = _CODES[name]
    if kind == HIT_RATE:
        view.wants_levels = True
    if kind == KV_USAGE:
        view.wants_blocks = True
    if kind >= WAITING:
        view.wants_counts = True
    return kind
