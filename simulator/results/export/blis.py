"""Files of BLIS: metrics.json, its MetricsOutput (`--metrics-path`), and results.json (`--results-path`).

Percentiles are interpolated between the nearest ranks, means are of sorted values, and all is 0 without values,
as in BLIS. The TTFT is that of every request that got a token; E2E, requests/s, output tokens and gaps between
tokens are of completed requests. `requests` has the requests accepted by a replica; BLIS counts others, if at all, and
does not list them. `num_decode_tokens` is the number generated, in BLIS the number in the trace.

Source: inference-sim, sim/metrics.go and sim/metrics_utils.go.
"""
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulator.domain import records
from simulator.results.export.source import Source
from simulator.results.export.text import blocks
from simulator.results.slo import only

MS, US = 1e6, 1e3               # ns
LISTED = (records.WAITING, records.RUNNING, records.COMPLETED, records.TIMED_OUT)
_NAMES = {"slo_class": "slo_class", "tenant": "tenant_id", "model": "model", "adapter": "adapter",
          "session": "session_id"}


def write_blis(source: Source, folder: Path, show: Callable[[int], None]) -> list[str]:
    """Write metrics.json and results.json; return notes on missing values."""
    rows = only(source.requests, np.isin(source.requests["status"], LISTED))
    gaps_ns = _gaps_ns(source)
    itl_ns = _mean_gaps_ns(rows)
    head = json.dumps(_totals(source, rows, gaps_ns), indent=2)
    with open(folder / "metrics.json", "w", encoding="utf-8", newline="\n") as file:
        file.write(f'{head[:-2]},\n  "requests": [')
        _write_list(file, (_request(source, row, itl) for row, itl in _each(rows, itl_ns)), len(rows), show)
        file.write("]\n}\n")
    done = rows["status"] == records.COMPLETED
    with open(folder / "results.json", "w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        results = (_result(source, row, itl) for row, itl in _each(only(rows, done), itl_ns[done]))
        _write_list(file, results, int(done.sum()), show)
        file.write("]\n")
    failed = int((source.requests["status"] == records.FAILED).sum())
    return [f"{failed} requests failed, which BLIS has no word for: they are in none of its counts"] if failed else []


def _totals(source: Source, rows: np.ndarray, gaps_ns: np.ndarray) -> dict[str, Any]:
    count = {name: int((source.requests["status"] == code).sum()) for code, name in enumerate(records.STATUS_NAMES)}
    done = only(rows, rows["status"] == records.COMPLETED)
    started = only(rows, rows["first_token_ns"] >= 0)
    seconds = source.summary["clock_s"]
    output_tokens = int(done["output_tokens"].sum())
    dropped = int(_is_unservable(source.requests).sum())
    return {
        "instance_id": "cluster",
        "completed_requests": len(done), "still_queued": count["waiting"], "still_running": count["running"],
        "injected_requests": dropped + sum(count[name] for name in ("completed", "waiting", "running", "timed_out")),
        "total_input_tokens": int(rows["prompt_tokens"].sum()), "total_output_tokens": output_tokens,
        "vllm_estimated_duration_s": seconds,
        "responses_per_sec": len(done) / seconds if seconds else 0,
        "tokens_per_sec": output_tokens / seconds if seconds else 0,
        **_described("e2e", done["completed_ns"] - done["arrival_ns"]),
        **_described("ttft", started["first_token_ns"] - started["arrival_ns"]),
        **_described("itl", gaps_ns),
        "scheduling_delay_p99_ms": _described("", (rows["scheduled_ns"] - rows["arrival_ns"])[
            rows["scheduled_ns"] >= 0])["_p99_ms"],
        **({"kv_allocation_failures": failures} if (failures := source.summary.get("kv_allocation_failures")) else {}),
        "preemption_count": source.summary["preemptions"],
        "cache_hit_rate": source.summary["prefix_cache"]["hit_rate"] or 0,
        "dropped_unservable": dropped,
        "length_capped_requests": source.summary["requests"]["length_capped"],
        "timed_out_requests": count["timed_out"]}


def _is_unservable(requests: np.ndarray) -> np.ndarray:
    """Return a mask of requests that no replica can serve: refused, or with too few KV blocks."""
    by_engine = requests["status"] == records.REJECTED
    if "cause" in requests.dtype.names:
        by_engine &= requests["cause"] == 0
    return by_engine | (requests["status"] == records.DROPPED)


def _described(name: str, values_ns: np.ndarray) -> dict[str, float]:
    """Return mean and percentiles in ms; 0 without values."""
    if not len(values_ns):
        return {f"{name}_{which}_ms": 0 for which in ("mean", "p90", "p95", "p99")}
    return {f"{name}_mean_ms": float(values_ns.mean()) / MS} | {
        f"{name}_p{percent}_ms": float(np.percentile(values_ns, percent)) / MS for percent in (90, 95, 99)}


def _gaps_ns(source: Source) -> np.ndarray:
    """Return the times between tokens of one request, of all completed requests together.

    For a request that started over they are of its last attempt: of its last `output_tokens` tokens.
    """
    offsets, times_ns = source.token_times()
    rows = source.all_requests
    kept = np.where(rows["status"] == records.COMPLETED, rows["output_tokens"], 0)
    found = [np.empty(0, np.int64)]
    for part in blocks(len(rows)):
        begins, ends = offsets[part], offsets[part.start + 1:part.stop + 1]
        counts, place = ends - begins, np.arange(begins[0], ends[-1])
        starts = place[(place >= np.repeat(ends - kept[part], counts)) & (place < np.repeat(ends - 1, counts))]
        found.append(times_ns[starts + 1] - times_ns[starts])
    return np.concatenate(found)


def _mean_gaps_ns(rows: np.ndarray) -> np.ndarray:
    spent_ns = np.where(rows["status"] == records.COMPLETED, rows["completed_ns"] - rows["first_token_ns"], 0)
    return spent_ns / np.maximum(rows["output_tokens"] - 1, 1)


def _each(rows: np.ndarray, itl_ns: np.ndarray) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield rows as dicts of Python's own numbers."""
    names = rows.dtype.names
    for part in blocks(len(rows)):
        for row, itl in zip(rows[part].tolist(), itl_ns[part].tolist(), strict=True):
            yield dict(zip(names, row, strict=True)), itl


def _request(source: Source, row: dict[str, Any], itl_ns: float) -> dict[str, Any]:
    def since_arrival_ms(name: str) -> float:
        return (row[name] - row["arrival_ns"]) / MS if row[name] >= 0 else 0

    request = {
        "arrived_at": row["arrival_ns"] / 1e9, "requestID": f"request_{row['request_id']}",
        "num_prefill_tokens": row["prompt_tokens"], "num_decode_tokens": row["output_tokens"],
        "ttft_ms": since_arrival_ms("first_token_ns"), "itl_ms": itl_ns / MS,
        "e2e_ms": since_arrival_ms("completed_ns"), "scheduling_delay_ms": since_arrival_ms("scheduled_ns")}
    if row["replica"] >= 0:
        request["handled_by"] = f"instance_{row['replica']}"
    request |= {name: source.labels[column][row[column]] for column, name in _NAMES.items() if row[column] >= 0}
    if row["finish_reason"] == records.MAX_MODEL_LEN:
        request["length_capped"] = True
    if row.get("dispatched_ns", -1) >= 0:
        request["gateway_queue_delay_ms"] = (row["dispatched_ns"] - row["admitted_ns"]) / MS
    return request


def _result(source: Source, row: dict[str, Any], itl_ns: float) -> dict[str, Any]:
    result = {
        "request_id": row["request_id"], "ttft_us": (row["first_token_ns"] - row["arrival_ns"]) / US,
        "e2e_us": (row["completed_ns"] - row["arrival_ns"]) / US, "input_tokens": row["prompt_tokens"],
        "output_tokens": row["output_tokens"]}
    for column in ("slo_class", "model"):
        if row[column] >= 0:
            result[column] = source.labels[column][row[column]]
    return result | ({"itl_mean_us": itl_ns / US} if itl_ns else {})


def _write_list(file, items: Iterator[dict[str, Any]], count: int, show: Callable[[int], None]) -> None:
    for part in blocks(count):
        texts = [json.dumps(next(items), ensure_ascii=False) for _ in range(part.start, part.stop)]
        file.write(("," if part.start else "") + "\n" + ",\n".join(texts))
        show(len(texts))
    file.write("\n" if count else "")
