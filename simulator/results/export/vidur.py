"""Files of Vidur: request_metrics.csv, SimAI's with more columns, batch_metrics.csv, chrome_trace.json.

The events in event_trace.json are described in `event_trace`. Times are seconds, in the trace microseconds. Columns and
their order are those of microsoft/vidur 7d47513 and of vidur-alibabacloud in SimAI cef83f9d; `tbt` is in SimAI's
description and not in its code, and is last here.
"""
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulator.domain import records
from simulator.results.export.batches import NEVER, Batches, Lane
from simulator.results.export.event_trace import write_event_trace
from simulator.results.export.requests import SECOND, RequestTimes
from simulator.results.export.source import Source
from simulator.results.export.text import BLOCK_ROWS, blocks, write_csv
from simulator.results.export.vidur_config import config_of

Show = Callable[[int], None]
BYTES = {"float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float32": 4}

EVENT = ("begin_ns", "duration_ns", "replica", "stage", "sequences", "prefill_tokens", "decode_tokens")
UNKNOWN = ("/iterations counts the requests of a batch and does not name them, and who was in it cannot be told where "
           "some are preempted or passed over, nor with pipeline stages")


def write_vidur(source: Source, folder: Path, show: Show) -> list[str]:
    """Write Vidur's files; return notes on blank columns."""
    return _write(source, folder, show, _vidur_columns)


def write_simai(source: Source, folder: Path, show: Show) -> list[str]:
    """Write SimAI's files, which have more columns; return notes on blank columns."""
    return _write(source, folder, show, _simai_columns)


def write_vidur_csv(source: Source, folder: Path, show: Show) -> list[str]:
    """Write Vidur's request_metrics.csv and batch_metrics.csv; return notes."""
    return _write_csv(source, folder, show, _vidur_columns, _batches_of(source))


def _write(source: Source, folder: Path, show: Show, columns_of) -> list[str]:
    batches = _batches_of(source)
    notes = _write_csv(source, folder, show, columns_of, batches)
    if unnamed := _write_trace(folder / "chrome_trace.json", source, batches, show):
        notes.append(f"chrome_trace.json has no request_ids for {unnamed} batches: {UNKNOWN}")
    write_event_trace(source, batches, folder, show)
    text = json.dumps(config_of(source), indent=4, ensure_ascii=False)
    (folder / "config.json").write_text(f"{text}\n", encoding="utf-8", newline="\n")
    return notes


def _batches_of(source: Source) -> Batches:
    return Batches(source.iterations, source.requests, source.legs)


def _write_csv(source: Source, folder: Path, show: Show, columns_of, batches: Batches) -> list[str]:
    requests, (execution_ns, preempted_ns) = source.requests, batches.spent_ns()

    def columns(part: slice) -> dict[str, np.ndarray]:
        before_ns = float(requests["arrival_ns"][part.start - 1]) if part.start else np.nan
        return columns_of(source, RequestTimes(requests[part], execution_ns[part], preempted_ns[part], before_ns))

    write_csv(folder / "request_metrics.csv", len(requests), columns, show)
    write_csv(folder / "batch_metrics.csv", len(batches.first_rows),
              lambda part: _batch_columns(source.iterations, batches, part), show)
    return list(_notes(requests["status"] == records.COMPLETED, execution_ns, batches))


def _notes(is_done: np.ndarray, execution_ns: np.ndarray, batches: Batches) -> Iterator[str]:
    done = int(is_done.sum())
    if late := len(is_done) - done:
        yield f"request_metrics.csv: {late} requests did not complete: their times and output lengths are blank"
    if unknown := int((is_done & np.isnan(execution_ns)).sum()):
        yield (f"request_metrics.csv: execution and preemption times of {unknown} of {done} completed requests are "
               f"blank: {UNKNOWN}; a run with output.vidur_csv = true adds them up")
    if lost := int((batches.end_ns == NEVER).sum()):
        yield f"batch_metrics.csv: {lost} batches did not pass all pipeline stages: their batch_execution_time is blank"


def _vidur_columns(source: Source, times: RequestTimes) -> dict[str, np.ndarray]:
    return {**_first_columns(source, times), **_last_columns(times)}


def _first_columns(source: Source, times: RequestTimes) -> dict[str, np.ndarray]:
    columns = {"Request Id": times.requests["request_id"]}
    for name, seconds in (("request_e2e_time", times.e2e_time), ("request_execution_time", times.execution_time),
                          ("request_model_execution_time", times.execution_time)):
        columns |= {name: seconds, f"{name}_normalized": times.per_output_token(seconds)}
    both = times.execution_plus_preemption_time
    return columns | {
        "request_preemption_time": times.preemption_time,
        "request_scheduling_delay": times.scheduling_delay,
        "request_execution_plus_preemption_time": both,
        "request_execution_plus_preemption_time_normalized": times.per_output_token(both),
        "prefill_e2e_time": times.prefill_e2e_time,
        "prefill_time_execution_plus_preemption": times.prefill_time,
        "prefill_time_execution_plus_preemption_normalized": times.prefill_time / times.prompt_tokens,
        "decode_time_execution_plus_preemption_normalized": times.per_output_token(times.decode_time)}


def _last_columns(times: RequestTimes) -> dict[str, np.ndarray]:
    return {
        "request_inter_arrival_delay": times.inter_arrival_delay,
        "request_num_tokens": times.prompt_tokens + times.output_tokens,
        "request_num_prefill_tokens": times.prompt_tokens,
        "request_num_decode_tokens": times.output_tokens,
        "request_pd_ratio": times.per_output_token(times.prompt_tokens),
        "request_num_restarts": times.restarts}


def _simai_columns(source: Source, times: RequestTimes) -> dict[str, np.ndarray]:
    return {
        **_first_columns(source, times),
        "arrived_at": times.arrived_at, "prefill_arrived_at": times.arrived_at, "scheduled_at": times.scheduled_at,
        "prefill_completed_at": times.prefill_completed_at,
        "decode_arrived_at": _transfers(times.requests)["arrived_at"],
        "completed_at": times.completed_at, "preempted_time": times.preemption_time, "decode_time": times.decode_time,
        **_transfer_columns(source, times.requests), **_last_columns(times),
        "tbt": times.per_output_token(times.decode_time)}


def _transfers(requests: np.ndarray) -> dict[str, np.ndarray]:
    """Return columns of hand-overs; as in SimAI, a request without one has infinite values."""
    nothing = np.full(len(requests), np.inf)
    if "transfer_end_ns" not in requests.dtype.names:
        return {"arrived_at": nothing, "bytes": nothing, "seconds": nothing}
    has_moved = requests["transfer_end_ns"] >= 0
    seconds = (requests["transfer_end_ns"] - requests["transfer_start_ns"]) / SECOND
    return {"arrived_at": np.where(has_moved, requests["transfer_end_ns"] / SECOND, np.inf),
            "bytes": np.where(has_moved, requests["transfer_bytes"].astype(float), np.inf),
            "seconds": np.where(has_moved, seconds, np.inf)}


def _transfer_columns(source: Source, requests: np.ndarray) -> dict[str, np.ndarray]:
    moved = _transfers(requests)
    has_moved = np.isfinite(moved["seconds"])
    took_time = has_moved & (moved["seconds"] > 0)
    bandwidth = np.zeros(len(requests))
    bandwidth[took_time] = moved["bytes"][took_time] / moved["seconds"][took_time]
    dtype = source.experiment.get("model", {}).get("kv_cache_dtype", "auto")
    width = BYTES.get(dtype, np.nan)
    return {
        "prefill_replica_id": np.where(has_moved, requests["prefill_replica"], np.nan),
        "decode_replica_id": np.where(has_moved, requests["replica"], np.nan),
        "pd_p2p_comm_size": moved["bytes"], "pd_p2p_comm_time": moved["seconds"], "pd_p2p_comm_bandwidth": bandwidth,
        "pd_p2p_bytes_per_token": np.where(has_moved, width, np.nan),
        "pd_p2p_comm_dtype": np.where(has_moved & (dtype in BYTES), dtype, "")}


def _batch_columns(iterations: np.ndarray, batches: Batches, part: slice) -> dict[str, np.ndarray]:
    rows, end_ns = batches.first_rows[part], batches.end_ns[part]
    prefill, decode = iterations["prefill_tokens"][rows], iterations["decode_tokens"][rows]
    took_ns = end_ns - iterations["start_ns"][rows]
    return {
        "Batch Id": np.arange(part.start, part.stop), "batch_num_tokens": prefill + decode,
        "batch_num_prefill_tokens": prefill, "batch_num_decode_tokens": decode,
        "batch_size": iterations["sequences"][rows],
        "batch_execution_time": np.where(end_ns == NEVER, np.nan, took_ns / SECOND)}


def _write_trace(path: Path, source: Source, batches: Batches, show: Show) -> int:
    """Write chrome_trace.json, one event for each batch and stage in order of their ends.

    Return how many batches have no ids of requests.
    """
    iterations = source.iterations
    order = np.argsort(iterations["begin_ns"] + iterations["duration_ns"], kind="stable")
    members, unnamed = _Members(source, batches), 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write('{"traceEvents": [')
        for first in range(0, len(order), BLOCK_ROWS):
            part = order[first:first + BLOCK_ROWS]
            texts = []
            shown = zip(part.tolist(), iterations[part][list(EVENT)].tolist(), batches.number[part].tolist(),
                        strict=True)
            for row, values, number in shown:
                event = _event(values, number, members.of(row))
                unnamed += event["args"]["request_ids"] is None and event["tid"] == 0
                texts.append(json.dumps(event, ensure_ascii=False))
            file.write((", " if first else "") + ", ".join(texts))
            show(len(part))
        file.write("]}\n")
    return unnamed


def _event(values: tuple[int, ...], number: int, members: list | None) -> dict[str, Any]:
    """Return one event; `num_tokens` has the tokens of each request where they are known, else null.

    values : of the columns EVENT.
    """
    begin_ns, duration_ns, replica, stage, count, prefill_tokens, decode_tokens = values
    all_decode = prefill_tokens == 0 and decode_tokens == count
    each = [1] * count if all_decode else [prefill_tokens + decode_tokens] if count == 1 else None
    return {"name": f"batch {number}" if members is None else str(members), "ph": "X",
            "ts": begin_ns / 1e3, "dur": duration_ns / 1e3, "pid": replica, "tid": stage,
            "args": {"batch_id": number, "batch_size": count, "request_ids": members, "num_tokens": each}}


class _Members:
    """The requests of each batch, queried in the order in which batches of a replica end."""

    def __init__(self, source: Source, batches: Batches):
        ids = source.requests["request_id"]
        self._lanes = {int(source.iterations["replica"][lane.batches[0]]): _sweep(lane, batches.stays.request, ids)
                       for lane in batches.lanes}
        self._replica = source.iterations["replica"]

    def of(self, row: int) -> list | None:
        """Return the ids in this row of /iterations; None: they are not known."""
        sweep = self._lanes.get(int(self._replica[row]))
        return None if sweep is None else next(sweep)


def _sweep(lane: Lane, request: np.ndarray, ids: np.ndarray) -> Iterator[list | None]:
    """Yield the ids in each batch of a replica, in order of admission."""
    there: dict[int, Any] = {}
    coming, going = _by_batch(lane.first), _by_batch(lane.last)
    come, gone = next(coming), next(going)
    for batch in range(len(lane.batches)):
        while come[0] <= batch:
            there[come[1]] = ids[request[lane.stays[come[1]]]].item()
            come = next(coming)
        while gone[0] <= batch:
            there.pop(gone[1], None)
            gone = next(going)
        yield list(there.values()) if lane.is_certain[batch] else None


def _by_batch(batches: np.ndarray) -> Iterator[tuple[float, int]]:
    """Yield batches in order, with their places; last the rows that no batch contains."""
    order = np.argsort(batches, kind="stable")
    for part in blocks(len(order)):
        yield from zip(batches[order[part]].tolist(), order[part].tolist(), strict=True)
    yield np.inf, -1
