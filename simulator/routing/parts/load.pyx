"""Measures of load, by name."""
from typing import Annotated, Literal

from msgspec import Meta

LoadName = Annotated[Literal[
    "requests", "tokens", "expected_tokens", "waiting", "running", "kv", "effective", "reported_tokens"], Meta(
    description=(
        "measure of load: requests in flight; their prompt tokens; prompt tokens plus output tokens predicted by "
        "output_knowledge (all on the gateway's own account, always exact); requests waiting; requests running; share "
        "of KV blocks used (as the replica reports); effective: waiting + running + in flight, as in BLIS; "
        "reported_tokens: tokens of the requests that wait or run, prompts and outputs so far, as the replica reports, "
        "for instance to SGLang's gateway each second"))]
_CODES = {"requests": REQUESTS, "tokens": TOKENS, "expected_tokens": EXPECTED, "waiting": WAITING, "running": RUNNING,
          "kv": KV, "effective": EFFECTIVE, "reported_tokens": REPORTED_TOKENS}


cdef Load load_named(str name, View view) except *:
    cdef Load kind = _CODES[name]
    if kind == REPORTED_TOKENS:
        view.wants_levels = True
    elif kind == KV:
        view.wants_blocks = True
    elif kind >= WAITING:
        view.wants_counts = True
    return kind
