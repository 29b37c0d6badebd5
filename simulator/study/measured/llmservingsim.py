"""The requests.jsonl of LLMServingSim's bench of a vLLM engine: a line for each request, on two clocks.

Source: casys-kaist/LLMServingSim at 5daddb21, docs/docs/reference/bench-cli.md, bench/core/validate.py.
`arrival_time` is Unix time, all others are monotonic: they differ by an unknown constant.
"""
import msgspec

from simulator.study.measured.record import OK, Measured, Row, from_first, span
from simulator.study.measured.source import Source
from simulator.workload.reading.json_lines import numbered_lines

NAME = "LLMServingSim requests.jsonl"


class Line(msgspec.Struct):
    """One request, seconds."""

    request_id: str
    input_toks: int
    output_toks: int
    arrival_time: float
    queued_ts: float
    first_token_ts: float
    last_token_ts: float


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return {"arrival_time", "queued_ts", "first_token_ts"} <= source.keys.keys()


def read(source: Source) -> list[Measured]:
    """Return the requests of a file.

    Raises
    ------
    InputErrors
        All faults of its lines.
    """
    lines = []
    for number, text in numbered_lines(source.data):
        line = source.decoded(text, Line, str(number))
        if line is not None and not line.queued_ts <= line.first_token_ts <= line.last_token_ts:
            source.faults.add(number, "expected queued_ts <= first_token_ts <= last_token_ts, found "
                                      f"{line.queued_ts}, {line.first_token_ts}, {line.last_token_ts}")
        lines.append(line)
    source.faults.raise_if_any()
    shift_s = shift_of(lines)
    rows = sorted((_row(line, shift_s) for line in lines), key=lambda row: row["sent_s"])
    delays = sorted(line.queued_ts - line.arrival_time + shift_s for line in lines)
    notes = (
        f"two clocks: arrival_time was shifted by {-shift_s:.6f} s, the least with which no request is queued before "
        f"it arrives; arrivals are then up to {1e3 * delays[-1]:.3f} ms before they are queued, "
        f"{1e3 * delays[len(delays) // 2]:.3f} in the median.",
        "times are those of the engine's core, behind the front end; what a client sees is later.")
    from_first(rows)
    return [Measured(source.stem, rows, [], notes, {"engine": "vLLM"})]


def shift_of(lines: list[Line]) -> float:
    """Return by how much the clock of arrivals is ahead of the other one, seconds.

    It is the largest arrival - queued: with any less a request would be queued before it arrives. The request with
    the shortest wait decides.
    """
    return max(line.arrival_time - line.queued_ts for line in lines)


def _row(line: Line, shift_s: float) -> Row:
    sent = line.arrival_time - shift_s
    return {
        "request_id": line.request_id, "planned_s": sent, "sent_s": sent, "ttft_s": span(line.first_token_ts, sent),
        "e2el_s": span(line.last_token_ts, sent), "input_tokens": line.input_toks, "output_tokens": line.output_toks,
        "status": OK}
