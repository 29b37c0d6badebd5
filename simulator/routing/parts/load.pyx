"""Measures of load, by name."""
from simulator.signals.view cimport View

from typing import Annotated, Literal

from msgspec import Meta

LoadName = Annotated[Literal["requests", "tokens", "expected_tokens", "waiting", "running", "kv", "effective"], Meta(
    description=(
        "what counts: requests in flight, their prompt tokens, these and the output tokens that output_knowledge "
        "foretells (all as the gateway knows them, always exact); requests waiting, running, share of KV blocks used "
        "(as the replica reports); effective: waiting + running + in flight, as BLIS adds them up"))]
_CODES = {"requests": REQUESTS, "tokens": TOKENS, "expected_tokens": EXPECTED, "waiting": WAITING, "running": RUNNING,
          "kv": KV, "effective": EFFECTIVE}


cdef Load load_named(str name, View view) except *:
    cdef Load kind = _CODES[name]
    if kind == KV:
        view.wants_blocks = True
    elif kind >= WAITING:
        view.wants_counts = True
    return kind
