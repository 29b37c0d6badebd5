"""inference-perf's per_request_lifecycle_metrics.json: a list of requests, with the time of each token.

Source: kubernetes-sigs/inference-perf at 7de5ef2e, docs/reports.md, and inference_perf/apis/base.py at 03e89d4a.
Times are seconds of one clock of the client; requests have no names. Tokens of an output are in `info`, in later
versions in `info.response_metrics`, with the server's count beside the client's.
"""
from typing import Any

import msgspec

from simulator.study.measured.record import FAILED, OK, Measured, Row, counted, failure_notes, from_first, span
from simulator.study.measured.source import Source

NAME = "inference-perf per_request_lifecycle_metrics.json"


class Response(msgspec.Struct):
    """The answer to a request."""

    output_tokens: int | None = None
    output_token_times: list[float] = []
    chunk_times: list[float] = []
    server_usage: dict[str, Any] | None = None


class Info(msgspec.Struct):
    """Tokens and their times."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    output_token_times: list[float] = []
    response_metrics: Response | None = None


class Failure(msgspec.Struct):
    """The reason for a missing answer."""

    error_type: str = FAILED
    error_msg: str = ""


class Request(msgspec.Struct):
    """One request."""

    start_time: float
    end_time: float
    info: Info | None = None
    error: Failure | None = None


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    if not source.items:
        return False
    try:
        return {"start_time", "end_time", "info"} <= msgspec.json.decode(source.items[0],
                                                                         type=dict[str, msgspec.Raw]).keys()
    except msgspec.DecodeError:
        return False


def read(source: Source) -> list[Measured]:
    """Return the requests of a file.

    Raises
    ------
    InputErrors
        All faults, by number.
    """
    requests = [source.decoded(raw, Request, f"[{i}]") for i, raw in enumerate(source.items)]
    source.faults.raise_if_any()
    rows = [_row(request, i) for i, request in enumerate(requests)]
    notes = list(failure_notes(rows))
    differing = sum(_client_tokens(request) not in (None, row["output_tokens"])
                    for request, row in zip(requests, rows) if row["status"] == OK)
    if differing:
        notes.append(f"of {counted(differing, 'request')} the server counted other output tokens than the client, "
                     "which splits the text once more: the server's are taken.")
    whole = sum(row["status"] == OK and row["ttft_s"] is None for row in rows)
    if whole:
        notes.append(f"{counted(whole, 'request')} came in one piece: no TTFT is known, and E2EL is to the end.")
    notes.append("when requests were scheduled is not in the file: whether the client was late cannot be said.")
    rows.sort(key=lambda row: row["sent_s"])
    notes.append(f"times are shifted by {-from_first(rows):.6f} s: 0 is the first request.")
    return [Measured(source.stem, rows, [], tuple(notes), {})]


def _row(request: Request, i: int) -> Row:
    info, error = request.info or Info(), request.error
    response = info.response_metrics or Response(info.output_tokens, info.output_token_times)
    times = response.output_token_times
    has_served = error is None
    usage = response.server_usage or {}
    details = usage.get("prompt_tokens_details") or {}
    output = usage.get("completion_tokens", response.output_tokens)
    return {
        "request_id": str(i), "sent_s": request.start_time,
        "ttft_s": span(times[0], request.start_time) if times else None,
        "e2el_s": span(times[-1] if times else request.end_time, request.start_time) if has_served else None,
        "input_tokens": usage.get("prompt_tokens", info.input_tokens), "output_tokens": output if has_served else None,
        "cached_tokens": details.get("cached_tokens"), "messages": len(response.chunk_times) or None,
        "status": OK if has_served else error.error_type or FAILED, "error": error and error.error_msg}


def _client_tokens(request: Request) -> int | None:
    info = request.info or Info()
    return info.response_metrics.output_tokens if info.response_metrics else info.output_tokens
