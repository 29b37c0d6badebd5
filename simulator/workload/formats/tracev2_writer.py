"""Writer of requests as a trace of BLIS, TraceV2: a CSV file and its header in YAML.

The workload may have run, so that arrivals, first and last tokens are known, or not. Source: see `tracev2`.
"""
import csv
from pathlib import Path

import numpy as np

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.base import Workload
from simulator.workload.formats.tracev2 import COLUMNS, US

OUTCOMES = {records.TIMED_OUT: "timeout", records.REJECTED: "error", records.DROPPED: "error", records.FAILED: "error"}
SHOWN = 5                               # requests that a message names


def write_tracev2(workload: Workload, path: str | Path, header_path: str | Path) -> int:
    """Write a trace and its header; return the number of its rows.

    Requests that were never sent are left out. Times are rounded to microseconds.

    Raises
    ------
    InputErrors
        Arrivals that are not known yet; prompts other than a prefix of a group and a rest of their own, since TraceV2
        can hold no others.
    """
    rows = np.flatnonzero(workload.requests["status"] != records.NOT_SENT)
    requests = workload.requests[rows]
    unknown = rows[requests["arrival_ns"] < 0]
    if len(unknown):
        raise InputErrors([f"{path}: when {_named(workload, unknown)} come is not known yet; run the workload first"])
    groups, shared = _prefixes(workload, rows, path)
    has_run = bool((requests["completed_ns"] >= 0).any())
    columns = _columns(workload, rows, groups, shared)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    Path(header_path).write_text(
        f"trace_version: 3\ntime_unit: microseconds\nmode: {'replayed' if has_run else 'generated'}\n"
        "warm_up_requests: 0\n", encoding="utf-8")
    return len(rows)


def _columns(workload: Workload, rows: np.ndarray, groups: list[str], shared: np.ndarray) -> dict[str, list]:
    """Return the columns in BLIS's order, which it requires for columns without values, too."""
    requests, demands = workload.requests[rows], workload.demands[rows]
    arrival_us, session = _us(requests["arrival_ns"]), _label(workload, "session", rows)
    completed = requests["status"] == records.COMPLETED
    values = dict.fromkeys(COLUMNS, [""] * len(rows)) | {
        "request_id": list(range(len(rows))), "tenant_id": _label(workload, "tenant", rows),
        "slo_class": _label(workload, "slo_class", rows)}
    values |= {"session_id": session, "round_index": _rounds(session, requests["arrival_ns"]),
               "prefix_group": groups, "prefix_length": shared.tolist(), "streaming": ["false"] * len(rows),
               "input_tokens": (requests["prompt_tokens"] - shared).tolist(),
               "output_tokens": np.minimum(workload.outcomes["output_tokens"][rows], demands["max_tokens"]).tolist(),
               "model": _label(workload, "model", rows), "arrival_time_us": arrival_us, "send_time_us": arrival_us,
               "deadline_us": _us(demands["deadline_ns"]), "first_chunk_time_us": _us(requests["first_token_ns"]),
               "last_chunk_time_us": _us(requests["completed_ns"]),
               "num_chunks": np.where(completed, requests["output_tokens"], 0).tolist(),
               "status": [OUTCOMES.get(status, "ok") for status in requests["status"].tolist()]}
    for name in ("text_tokens", "image_tokens", "audio_tokens", "video_tokens", "reason_ratio", "server_input_tokens"):
        values[name] = [0] * len(rows)
    if demands["priority"].any():
        values = _inserted(values, "slo_class", "vllm_priority", demands["priority"].tolist())
    if "adapter" in workload.labels:
        values["adapter"] = _label(workload, "adapter", rows)
    return values


def _inserted(values: dict, after: str, name: str, column: list) -> dict:
    place = list(values).index(after) + 1
    items = list(values.items())
    return dict([*items[:place], (name, column), *items[place:]])


def _us(times_ns: np.ndarray) -> list[int]:
    """Return microseconds; 0: not known."""
    return np.where(times_ns < 0, 0, (times_ns + US // 2) // US).tolist()


def _label(workload: Workload, column: str, rows: np.ndarray) -> list[str]:
    names = [*workload.labels.get(column, ()), ""]
    return [names[code] for code in workload.demands[column][rows].tolist()]


def _rounds(sessions: list[str], arrival_ns: np.ndarray) -> list[int]:
    """Return the place of each request in its session, by arrival."""
    rounds, counts = [0] * len(sessions), {}
    for row in np.argsort(arrival_ns, kind="stable").tolist():
        if sessions[row]:
            rounds[row] = counts.get(sessions[row], 0)
            counts[sessions[row]] = rounds[row] + 1
    return rounds


def _prefixes(workload: Workload, rows: np.ndarray, path: str | Path) -> tuple[list[str], np.ndarray]:
    """Return the group of each request's prompt, "" for none, and the length of its prefix."""
    groups, shared, lengths, wrong = [], np.zeros(len(rows), np.int64), {}, []
    for place, row in enumerate(rows.tolist()):
        begin, count = (int(workload.demands[name][row]) for name in ("segments_begin", "num_segments"))
        pieces = workload.segments[begin:begin + count].tolist()
        own = [int(records.own_stream(row))]
        streams = [stream for stream, _ in pieces]
        if not pieces or streams == own:
            groups.append("")
            continue
        stream, shared[place] = pieces[0]
        if (stream & 3 != records.named_stream(0) or streams[1:] not in ([], own)
                or lengths.setdefault(stream, shared[place]) != shared[place]):
            wrong.append(row)
        groups.append(f"g{stream >> 2}")
    if wrong:
        raise InputErrors([
            f"{path}: the prompts of {_named(workload, wrong)} are no prefix of a group, equally long in all of it, "
            "and a rest of their own; TraceV2 has no others"])
    return groups, shared


def _named(workload: Workload, rows) -> str:
    names = ", ".join(str(workload.request_ids[row]) for row in rows[:SHOWN])
    return f"requests {names}{', ...' if len(rows) > SHOWN else ''}"
