"""Spans of requests, as vLLM traces them: OTLP JSON, an export a line.

Sources: vLLM 0.33.0, v1/engine/output_processor.py (do_tracing) and tracing/utils.py, as specs/serve.md quotes them,
8.5: one span `llm_request` for each request that completes, its attributes, its context by `traceparent`;
OpenTelemetry proto 1.7, trace.proto, its JSON mapping; W3C Trace Context, level 1: the header. A request with a parent
that is not sampled has no span.
"""
import re
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from simulator.domain import records
from simulator.live.bodies import Body
from simulator.live.clock import Clock
from simulator.live.exchange import CHAT
from simulator.workload.base import Workload

TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
IS_SAMPLED = 1
SERVER_KIND = 2                 # SPAN_KIND_SERVER
SPANS_A_LINE = 512              # of an export: OpenTelemetry's default of a batch


class Asked(NamedTuple):
    """Facts of a request that its row has not.

    id : of the request. n, max_tokens, temperature, top_p : as it was sampled. trace, parent : in hex; "": its own.
    """

    id: str
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    trace: str
    parent: str


class Spans:
    """Requests of a session, and their spans.

    clock : of the session; spans have its simulated time, from the wall's time of the beginning on. seed : of the
    experiment, for ids.
    """

    def __init__(self, clock: Clock, seed: int):
        self._begin_ns = time.time_ns() - (clock.wall_ns() - clock.changes[0][0])
        self._seed, self._asked = seed, {}

    def note(self, row: int, name: str, body: Body, max_tokens: int, headers: Mapping[str, str]) -> None:
        """Take note of a request; name : its id."""
        found = TRACE_PARENT.fullmatch(headers.get("traceparent", "").strip())
        if found is not None and not int(found[3], 16) & IS_SAMPLED:
            return
        self._asked[row] = Asked(
            name, body.n or 1, max_tokens, 1.0 if body.temperature is None else body.temperature,
            1.0 if body.top_p is None else body.top_p, *(("", "") if found is None else found.group(1, 2)))

    def lines(self, served: Workload, service: str) -> Iterator[bytes]:
        """Yield the lines of a file with all spans, in order of their ends.

        service : its name.
        """
        requests = served.requests
        rows = [row for row in self._asked if row < len(requests) and requests["status"][row] == records.COMPLETED]
        rows.sort(key=lambda row: (requests["completed_ns"][row], row))
        resource = {"attributes": _attributes({"service.name": service})}
        for first in range(0, len(rows), SPANS_A_LINE):
            spans = [self._span(row, requests[row]) for row in rows[first:first + SPANS_A_LINE]]
            yield msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [
                {"scope": {"name": "vllm.llm_engine"}, "spans": spans}]}]}) + b"\n"

    def _span(self, row: int, request) -> dict[str, Any]:
        asked, begin_ns, end_ns = self._asked[row], int(request["arrival_ns"]), int(request["completed_ns"])
        scheduled_ns, first_ns = int(request["scheduled_ns"]), int(request["first_token_ns"])
        own = blake2b(f"{self._seed}/{row}".encode(), digest_size=24).hexdigest()
        parent = {"parentSpanId": asked.parent} if asked.parent else {}
        facts = {
            "gen_ai.latency.time_to_first_token": (first_ns - begin_ns) / 1e9,
            "gen_ai.latency.e2e": (end_ns - begin_ns) / 1e9,
            "gen_ai.latency.time_in_queue": (scheduled_ns - int(request["enqueued_ns"])) / 1e9,
            "gen_ai.usage.prompt_tokens": int(request["prompt_tokens"]),
            "gen_ai.usage.completion_tokens": int(request["output_tokens"]),
            "gen_ai.latency.time_in_model_prefill": (first_ns - scheduled_ns) / 1e9,
            "gen_ai.latency.time_in_model_decode": (end_ns - first_ns) / 1e9,
            "gen_ai.latency.time_in_model_inference": (end_ns - scheduled_ns) / 1e9, "gen_ai.request.id": asked.id}
        facts |= {f"gen_ai.request.{name}": value for name in ("top_p", "max_tokens", "temperature", "n")
                  if (value := getattr(asked, name))}           # vLLM leaves 0 out
        return {"traceId": asked.trace or own[:32], "spanId": own[32:], **parent, "name": "llm_request",
                "kind": SERVER_KIND, "startTimeUnixNano": str(self._begin_ns + begin_ns),
                "endTimeUnixNano": str(self._begin_ns + end_ns), "attributes": _attributes(facts), "status": {}}


def request_name(kind: str, name: str, index: int, n: int) -> str:
    """Return the id of an engine's request, as vLLM has it.

    kind : of the answer. name : its id. index : of the choice. n : choices of a prompt.
    """
    prompt = name if kind == CHAT else f"{name}-{index // n}"
    return prompt if n == 1 else f"{index % n}_{prompt}"


def _attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as OTLP writes them: whole numbers as text."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [{"key": name, "value": {kinds[type(value)]: str(value) if isinstance(value, int) else value}}
            for name, value in facts.items()]
