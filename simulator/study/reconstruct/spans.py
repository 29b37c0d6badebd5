"""Spans of requests as OpenTelemetry exports them: OTLP JSON, whole or one export a line, or flat spans a line.

Source: OpenTelemetry proto 1.7, trace.proto, its JSON mapping; vLLM 0.33.0, tracing: the span `llm_request` with
gen_ai.usage.prompt_tokens and gen_ai.usage.completion_tokens. It begins when the request arrives at the engine.
"""
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.reconstruct.access_log import UNKNOWN, Requests, in_order

PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")


def recognises(source: Source) -> bool:
    """Return whether a file has spans of requests to models."""
    return source.data.lstrip()[:1] in (b"{", b"[") and b"gen_ai.usage." in source.data


def read(source: Source) -> Requests:
    """Return a request for each span that has a number of prompt tokens.

    Raises
    ------
    InputErrors
        No JSON; spans without a time.
    """
    rows = []
    for place, span in _spans(source):
        facts = _attributes(span.get("attributes"))
        prompt = _first(facts, PROMPT)
        if prompt is None:
            continue
        begin_s = _time_s(span)
        if begin_s is None:
            source.wrong(place, "startTimeUnixNano: expected the time of a span's begin")
            continue
        output = _first(facts, OUTPUT)
        rows.append((begin_s, prompt, UNKNOWN if output is None else output))
    source.faults.raise_if_any()
    if not rows:
        raise InputErrors([f"{source.path}: no span with {PROMPT[0]} in it"])
    table = np.array(rows, np.float64)
    return in_order(table[:, 0], table[:, 1], table[:, 2])


def _spans(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, content in source.contents():
        for span in _inside(content):
            yield place or "1", span


def _inside(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        for each in content:
            yield from _inside(each)
    elif isinstance(content, dict):
        inner = [content[key] for key in ("resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "spans")
                 if key in content]
        if inner:
            yield from _inside(inner)
        elif "attributes" in content:
            yield content


def _attributes(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    found = {}
    for each in given if isinstance(given, list) else ():
        value = each.get("value") if isinstance(each, dict) else None
        if isinstance(value, dict) and value:
            found[each.get("key")] = next(iter(value.values()))
    return found


def _first(facts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        try:
            return int(float(facts[name]))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _time_s(span: dict[str, Any]) -> float | None:
    given = span.get("startTimeUnixNano", span.get("start_time"))
    try:
        if isinstance(given, str) and not given.isdecimal():
            return datetime.fromisoformat(given).timestamp()
        return int(given) / 1e9
    except (TypeError, ValueError):
        return None
