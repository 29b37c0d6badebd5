"""`vllm bench serve --save-result --save-detailed`: one JSON object with one list per property of requests.

Source: vllm-project/vllm, vllm/benchmarks/serve.py at 009e6d4a. Times are seconds of a clock that counts from no
known date (perf_counter); a request that failed has a TTFT of 0; `itls` has a gap for each message of the stream.
"""
import msgspec

from simulator.errors import InputErrors
from simulator.study.measured.record import FAILED, OK, Measured, Row, counted, failure_notes, from_first
from simulator.study.measured.source import Source

NAME = "vllm bench serve"
DETAILED = ("input_lens", "output_lens", "ttfts", "itls")
CLOSE_S = 1e-9          # of sums of doubles; they are equal to the bit in files of vLLM 0.32
CLOSE_FRAC = 1e-6
MS = 1e3


class Result(msgspec.Struct):
    """The keys that are read; a mean is null where no request has the value."""

    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    latencies: list[float] | None = None
    start_times: list[float] | None = None
    queue_times: list[float] | None = None
    errors: list[str | None] | None = None
    date: str | None = None
    model_id: str | None = None
    mean_ttft_ms: float | None = None
    mean_tpot_ms: float | None = None
    mean_itl_ms: float | None = None
    mean_e2el_ms: float | None = None


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return {"num_prompts", "completed", "request_throughput"} <= source.keys.keys()


def read(source: Source) -> list[Measured]:
    """Return the requests of a file.

    Raises
    ------
    InputErrors
        It lacks lists of single requests, or has lists of different lengths.
    """
    lacking = [key for key in DETAILED if key not in source.keys]
    if lacking:
        raise InputErrors([f"{source.path}: {', '.join(lacking)}: missing; without --save-detailed `vllm bench serve` "
                           "keeps sums, and of each request latencies and queue_times at most"])
    result = source.decoded(source.data, Result, "JSON")
    if result is not None:
        _check_lengths(source, result)
    source.faults.raise_if_any()
    rows = [_row(result, i) for i in range(len(result.ttfts))]
    notes = [*_notes(result, rows), *failure_notes(rows), *_against_means(result, rows)]
    from_first(rows)
    about = {"engine": "vLLM"} | ({"date": result.date} if result.date else {})
    return [Measured(source.stem, rows, [], tuple(notes), about)]


def _check_lengths(source: Source, result: Result) -> None:
    count = len(result.ttfts)
    for key in ("input_lens", "output_lens", "itls", "latencies", "start_times", "errors"):
        values = getattr(result, key)
        if values is not None and len(values) != count:
            source.wrong(key, f"expected {count}, one for each of ttfts, found {len(values)}")


def _row(result: Result, i: int) -> Row:
    error = result.errors[i] if result.errors else None
    ttft, gaps, output = result.ttfts[i], result.itls[i], result.output_lens[i]
    has_failed = bool(error) or (ttft == 0.0 and output == 0)
    latency = result.latencies[i] if result.latencies else ttft + sum(gaps)
    return {
        "request_id": str(i), "sent_s": result.start_times[i] if result.start_times else None,
        "ttft_s": None if has_failed or ttft == 0.0 else ttft, "e2el_s": None if has_failed else latency,
        "input_tokens": result.input_lens[i], "output_tokens": None if has_failed else output,
        "messages": None if has_failed else len(gaps) + (ttft > 0.0), "status": FAILED if has_failed else OK,
        "error": error or None}


def _notes(result: Result, rows: list[Row]):
    """Yield notes on missing or ambiguous data in this format."""
    if result.start_times is None:
        yield ("start_times: missing; when requests were sent is not known, so that they can be compared but not "
               "replayed.")
    else:
        yield "start_times count from no known date: they are shifted so that the first request is sent at 0."
    if result.latencies is None:
        yield "latencies: missing; each is its TTFT and the sum of its gaps."
    else:
        deviating = sum(row["status"] == OK
                        and abs(result.ttfts[i] + sum(result.itls[i]) - result.latencies[i]) > CLOSE_S
                        for i, row in enumerate(rows))
        if deviating:
            yield f"of {counted(deviating, 'request')} TTFT and the sum of gaps are not the latency."
    if result.queue_times:
        yield (f"queue_times, up to {MS * max(result.queue_times):.3g} ms in the client before a request is sent, are "
               "not used: what was planned is not in the file.")
    merged = sum(row["status"] == OK and row["messages"] < row["output_tokens"] for row in rows)
    if merged:
        yield f"{counted(merged, 'request')} had messages of more than one token: gaps are of messages, not of tokens."


def _against_means(result: Result, rows: list[Row]):
    """Yield means in the file that differ from the means over its requests."""
    served = [i for i, row in enumerate(rows) if row["status"] == OK]
    gaps = [gap for i in served for gap in result.itls[i]]
    found = {
        "mean_ttft_ms": [rows[i]["ttft_s"] or 0.0 for i in served], "mean_e2el_ms": [rows[i]["e2el_s"] for i in served],
        "mean_itl_ms": gaps, "mean_tpot_ms": [
            (rows[i]["e2el_s"] - result.ttfts[i]) / (result.output_lens[i] - 1) for i in served
            if result.output_lens[i] > 1]}
    for key, values in found.items():
        reported, mean = getattr(result, key), MS * sum(values) / len(values) if values else None
        if reported is not None and mean is not None and abs(mean - reported) > CLOSE_FRAC * abs(reported):
            yield f"{key} = {reported:.6g} in the file, {mean:.6g} from its requests."
