"""AIPerf's profile_export.jsonl: a line for each request, with metrics that name their units.

Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md at db4f6397. Times of `metadata` are Unix
nanoseconds; `credit_issued_ns`, in later versions, is the planned time of a request. Its inter_token_latency is our
TPOT, its inter_chunk_latency the list of gaps.
"""
from typing import Any

import msgspec

from simulator.study.measured.record import OK, Measured, Row, counted, failure_notes, from_first
from simulator.study.measured.source import Source
from simulator.workload.reading.json_lines import numbered_lines

NAME = "AIPerf profile_export.jsonl"
PER_S = {"ns": 1e-9, "nanoseconds": 1e-9, "us": 1e-6, "microseconds": 1e-6, "ms": 1e-3, "milliseconds": 1e-3,
         "s": 1.0, "sec": 1.0, "seconds": 1.0}
CANCELLED, FAILED = "cancelled", "failed"
MEASURED_PHASE = "profiling"


class Metadata(msgspec.Struct):
    """Names and times of a request; Unix nanoseconds."""

    request_start_ns: int
    credit_issued_ns: int | None = None
    x_request_id: str | None = None
    x_correlation_id: str | None = None
    turn_index: int = 0
    benchmark_phase: str = MEASURED_PHASE
    was_cancelled: bool = False


class Metric(msgspec.Struct):
    """A value, or a list of values, and its unit."""

    value: Any
    unit: str = ""


class Failure(msgspec.Struct):
    """The reason for a missing answer."""

    code: int | None = None
    type: str | None = None
    message: str | None = None


class Line(msgspec.Struct):
    """One request."""

    metadata: Metadata
    metrics: dict[str, Metric] | None = None
    error: Failure | None = None


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return {"metadata", "metrics"} <= source.keys.keys()


def read(source: Source) -> list[Measured]:
    """Return the requests of a file.

    Raises
    ------
    InputErrors
        All faults of its lines.
    """
    rows, others, turns = [], 0, False
    for number, text in numbered_lines(source.data):
        line = source.decoded(text, Line, str(number))
        if line is None:
            continue
        if line.metadata.benchmark_phase != MEASURED_PHASE:
            others += 1
            continue
        turns |= line.metadata.turn_index > 0
        rows.append(_row(line, number, source))
    source.faults.raise_if_any()
    if not rows:
        source.faults.add(0, f'no request is of benchmark_phase "{MEASURED_PHASE}"')
        source.faults.raise_if_any()
    rows.sort(key=lambda row: row["sent_s"])
    for row in rows:
        if not turns:
            row["session"] = row["round"] = None
    notes = [f"{counted(others, 'request')} of other phases than \"{MEASURED_PHASE}\" were left out."] if others else []
    notes += failure_notes(rows)
    if not any(row.get("ttft_s") is not None for row in rows):
        notes.append("time_to_first_token: of no request; they were not streamed.")
    if all(row["planned_s"] is None for row in rows):
        notes.append("when requests were planned is not in the file: whether the client was late cannot be said.")
    notes.append(f"Unix times are shifted by {-from_first(rows):.6f} s: 0 is the first request.")
    return [Measured(source.stem, rows, [], tuple(notes), {})]


def _row(line: Line, number: int, source: Source) -> Row:
    metrics, metadata, error = line.metrics or {}, line.metadata, line.error
    status = OK
    if metadata.was_cancelled:
        status = CANCELLED
    elif error is not None:
        status = error.type or FAILED
    values = {name: _value(metrics.get(name), name, number, source) for name in (
        "time_to_first_token", "request_latency", "input_sequence_length", "error_isl", "output_sequence_length",
        "output_token_count")}
    gaps = metrics.get("inter_chunk_latency")
    prompt = values["input_sequence_length"] if values["input_sequence_length"] is not None else values["error_isl"]
    output = values["output_sequence_length"]
    if output is None:
        output = values["output_token_count"]
    return {
        "request_id": metadata.x_request_id or str(number),
        "planned_s": None if metadata.credit_issued_ns is None else metadata.credit_issued_ns * 1e-9,
        "sent_s": metadata.request_start_ns * 1e-9,
        "ttft_s": _rounded(values["time_to_first_token"]), "e2el_s": _rounded(values["request_latency"]),
        "input_tokens": prompt and int(prompt), "output_tokens": None if output is None else int(output),
        "messages": len(gaps.value) + 1 if gaps is not None and isinstance(gaps.value, list) else None,
        "status": status, "error": error and error.message, "session": metadata.x_correlation_id,
        "round": metadata.turn_index}


def _value(metric: Metric | None, name: str, number: int, source: Source) -> float | None:
    """Return a metric in seconds, or a count."""
    if metric is None or metric.value is None:
        return None
    if not isinstance(metric.value, (int, float)):
        source.faults.add(number, f"metrics.{name}.value: expected a number, found {str(metric.value)[:40]}")
        return None
    if metric.unit == "tokens":
        return metric.value
    if metric.unit not in PER_S:
        source.faults.add(number, f'metrics.{name}.unit: expected one of {", ".join(PER_S)}, tokens, found '
                                  f'"{metric.unit}"')
        return None
    return metric.value * PER_S[metric.unit]


def _rounded(value_s: float | None) -> float | None:
    return None if value_s is None else round(value_s, 9)
