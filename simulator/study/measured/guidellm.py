"""GuideLLM's JSON: benchmarks, one per strategy, each with the requests that it sent.

Source: vllm-project/guidellm at ee7a7745, src/guidellm/schemas/{request_stats,info}.py. Times are Unix seconds. Its
`time_per_output_token_ms` divides all the time by all tokens, its `inter_token_latency_ms` is our TPOT: neither is
read, only times are.
"""
from typing import Any

import msgspec

from simulator.study.measured.record import FAILED, OK, Measured, Row, counted, failure_notes, from_first, span
from simulator.study.measured.source import Source

NAME = "GuideLLM"


class Timings(msgspec.Struct):
    """Times of events, Unix seconds."""

    targeted_start: float | None = None
    request_start: float | None = None
    first_request_iteration: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    request_end: float | None = None
    token_iterations: int | None = None


class Info(msgspec.Struct):
    """The client scheduler's record of a request."""

    timings: Timings
    conversation_id: str | None = None
    turn_index: int = 0
    error: str | None = None


class Usage(msgspec.Struct):
    """Tokens of a prompt or an output."""

    total_tokens: int | None = None


class Request(msgspec.Struct):
    """One request."""

    info: Info
    request_id: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    input_metrics: Usage | None = None
    output_metrics: Usage | None = None


class Requests(msgspec.Struct):
    """Requests of a benchmark, by their end."""

    successful: list[msgspec.Raw]
    errored: list[msgspec.Raw] = []
    incomplete: list[msgspec.Raw] = []


class Benchmark(msgspec.Struct):
    """One strategy."""

    requests: Requests
    config: Any = None


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return "benchmarks" in source.keys


def read(source: Source) -> list[Measured]:
    """Return the requests of each strategy.

    Raises
    ------
    InputErrors
        All faults, by benchmark and request.
    """
    found = []
    benchmarks = source.decoded(source.keys["benchmarks"], list[msgspec.Raw], "benchmarks") or []
    for number, raw in enumerate(benchmarks):
        place = f"benchmarks[{number}]"
        benchmark = source.decoded(raw, Benchmark, place)
        if benchmark is not None:
            name = f"{source.stem}-{number}{_strategy(benchmark.config)}" if len(benchmarks) > 1 else source.stem
            found.append(_measured(source, name, benchmark.requests, f"{place}.requests"))
    if not benchmarks:
        source.wrong("benchmarks", "there are none")
    source.faults.raise_if_any()
    return found


def _strategy(config: Any) -> str:
    """Return a strategy's name as a suffix for a folder; empty: not in the file."""
    strategy = config.get("strategy") if isinstance(config, dict) else None
    kind = strategy.get("type_") if isinstance(strategy, dict) else None
    return f"-{kind}" if isinstance(kind, str) and kind.isidentifier() else ""


def _measured(source: Source, name: str, requests: Requests, place: str) -> Measured:
    rows = []
    for kind, status in (("successful", OK), ("errored", FAILED), ("incomplete", "incomplete")):
        for i, raw in enumerate(getattr(requests, kind)):
            request = source.decoded(raw, Request, f"{place}.{kind}[{i}]")
            if request is not None:
                rows.append(_row(request, status, f"{kind}-{i}"))
    if not (requests.successful or requests.errored or requests.incomplete):
        source.wrong(place, "there are none")
    rows.sort(key=lambda row: row["sent_s"] if row["sent_s"] is not None else float("inf"))
    notes = list(failure_notes(rows))
    whole = sum(row["status"] == OK and row["ttft_s"] is None for row in rows)
    if whole:
        notes.append(f"{counted(whole, 'request')} came in one piece: no TTFT is known, and E2EL is to the end.")
    notes.append(f"Unix times are shifted by {-from_first(rows):.6f} s: 0 is the first targeted start.")
    return Measured(name, rows, [], tuple(notes), {})


def _row(request: Request, status: str, name: str) -> Row:
    times, info = request.info.timings, request.info
    last = times.last_token_iteration if times.last_token_iteration is not None else times.request_end
    is_turn = info.conversation_id is not None and info.turn_index > 0
    return {
        "request_id": request.request_id or name, "planned_s": times.targeted_start, "sent_s": times.request_start,
        "ttft_s": span(times.first_token_iteration, times.request_start),
        "e2el_s": span(last, times.request_start) if status == OK else None,
        "first_message_s": span(times.first_request_iteration, times.request_start),
        "input_tokens": _tokens(request.prompt_tokens, request.input_metrics),
        "output_tokens": _tokens(request.output_tokens, request.output_metrics),
        "messages": times.token_iterations, "status": status, "error": info.error,
        "session": info.conversation_id if is_turn else None, "round": info.turn_index if is_turn else None}


def _tokens(count: int | None, usage: Usage | None) -> int | None:
    return count if count is not None or usage is None else usage.total_tokens
