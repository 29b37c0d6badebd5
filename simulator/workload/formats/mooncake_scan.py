"""Columns of a scanned Mooncake trace, without an object for each line; see `mooncake` for the format.

`columns_of` gives up where a line needs a message, or is of a graph.
"""
from pathlib import Path

import numpy as np

from simulator.workload.columns import Columns, Waits, nearest
from simulator.workload.formats.blocks import prompts_of_codes, ranks
from simulator.workload.formats.json_lines import has_all_blocks
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING
from simulator.workload.reading.epochs import epoch_unit_s, unit_note
from simulator.workload.reading.json_scan import JsonScan

STRICT_PRIORITY = "the trace gives {} requests a strict_priority, which has no effect here"


def columns_of(path: str | Path, scan: JsonScan, block_size: int) -> Columns | None:
    """Return the requests of a file; None: it has to be read line by line."""
    counts = _column(scan, "hash_ids", MISSING)
    prompt_tokens = _first_of(scan, ("input_length", "input_tokens"), MISSING)
    is_lacking = (prompt_tokens == MISSING) & (counts > 0)
    prompt_tokens = np.where(is_lacking, counts * block_size, prompt_tokens)
    output_tokens = _first_of(scan, ("output_length", "output_tokens"), MISSING)
    timestamps, delays = (_first_of(scan, names, np.nan) for names in (
        ("timestamp", "created_time"), ("delay", "delay_ms")))
    if ((prompt_tokens == MISSING) | (output_tokens == MISSING)).any() or prompt_tokens.max() > MAX_TOKENS or (
            not has_all_blocks(counts, prompt_tokens, block_size)) or (_column(scan, "delay_ms", np.nan) == 0).any():
        return None
    is_timed = ~np.isnan(timestamps)
    unit_s = epoch_unit_s(timestamps[is_timed].min(initial=np.inf) if is_timed.any() else 0.0, "ms")
    if unit_s != 1e-3:
        timestamps = timestamps * (unit_s * 1e3)
    if (timestamps[is_timed] > MAX_TIME_NS / 1e6).any():
        return None
    arrival_ns, waits = nearest(timestamps * 1e6) if is_timed.all() else None, {}
    if arrival_ns is None or "session_id" in scan.values or not np.isnan(delays).all():
        chained = _sessions(_column(scan, "session_id", MISSING), timestamps, delays)
        if chained is None:
            return None
        arrival_ns, waits = chained[0], {"waits": chained[1]}
    codes = ranks(scan.items.get("hash_ids", np.empty(0, np.int64)))
    prompts = prompts_of_codes(np.maximum(counts, 0), codes, block_size, prompt_tokens)
    return Columns(arrival_ns, prompt_tokens, output_tokens, prompts=prompts, **waits,
                   **_named(scan, unit_note(path, "timestamp", unit_s, "ms")))


def _column(scan: JsonScan, name: str, missing: float) -> np.ndarray:
    values = scan.values.get(name)
    return np.full(len(scan.lines), missing) if values is None else values


def _first_of(scan: JsonScan, names: tuple[str, str], missing: float) -> np.ndarray:
    """Return the values of a key, or of its second name where a line lacks it."""
    first, second = (_column(scan, name, missing) for name in names)
    if names[1] not in scan.values:
        return first
    return np.where(np.isnan(first) if np.isnan(missing) else first == missing, second, first)


def _sessions(sessions: np.ndarray, timestamps: np.ndarray, delays: np.ndarray
              ) -> tuple[np.ndarray, Waits | None] | None:
    """Return arrivals of first lines, ns, and the waits of later ones.

    None: a line lacks a time, or has one that it cannot have.
    sessions : code of each line's session; MISSING: a session of its own.
    """
    rows = np.arange(len(sessions))
    keys = np.where(sessions == MISSING, sessions.max(initial=0) + 1 + rows, sessions)
    _, first_rows, of_key = np.unique(keys, return_index=True, return_inverse=True)
    plays = np.argsort(np.argsort(first_rows))[of_key]
    order = np.argsort(of_key, kind="stable")
    before = np.full(len(rows), -1)
    follows = of_key[order[1:]] == of_key[order[:-1]]
    before[order[1:][follows]] = order[:-1][follows]
    is_first, targets = before < 0, np.flatnonzero(before >= 0)
    sources, has_delay = before[targets], ~np.isnan(delays)
    reads_times = ~has_delay[targets]
    gaps = timestamps[targets] - timestamps[sources]
    if (has_delay | np.isnan(timestamps))[is_first].any() or not (gaps[reads_times] >= 0).all():
        return None
    times_ns, delays_ns = (_whole(np.nan_to_num(values) * 1e6) for values in (timestamps, delays))
    waits = Waits(plays, sources, targets, np.where(reads_times, times_ns[targets] - times_ns[sources],
                                                    delays_ns[targets]), np.zeros(len(targets), bool))
    return np.where(is_first, times_ns, 0), waits if len(targets) else None


def _whole(values: np.ndarray) -> np.ndarray:
    """Return values >= 0 as integers; halves go up, as in `agent_graphs.ns_of_ms`."""
    return (values + 0.5).astype(np.int64)


def _named(scan: JsonScan, notes: tuple[str, ...]) -> dict:
    """Return the columns that only some files have: ids, labels, priorities, notes."""
    columns = {"labels": {}, "notes": notes}
    if "request_id" in scan.values:
        names = scan.texts["request_id"]
        columns["request_ids"] = [str(row) if code == MISSING else names[code]
                                  for row, code in enumerate(scan.values["request_id"].tolist())]
    for label, key in (("session", "session_id"), ("slo_class", "policy_class")):
        if key in scan.values:
            columns["labels"][label] = np.maximum(scan.values[key], -1), scan.texts[key]
    priority = _column(scan, "priority", MISSING)
    if (priority != MISSING).any() and (priority[priority != MISSING] != 0).any():
        columns["priority"] = -np.where(priority == MISSING, 0, priority)
    if tiers := int(np.count_nonzero(_column(scan, "strict_priority", MISSING) > 0)):
        columns["notes"] += (STRICT_PRIORITY.format(tiers),)
    return columns
