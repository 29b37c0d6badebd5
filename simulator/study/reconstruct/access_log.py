"""Access logs of a gateway or server: one row a request, with a time and counts of tokens.

Columns may have the names of a native trace or those that logs usually give them; `latency` (seconds; `latency_ms`)
and `status` are optional.
"""
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.workload.formats.native_names import SYNONYMS, plain
from simulator.workload.reading.epochs import UNITS_S, epoch_unit_s

LATENCIES = {"latency": 1.0, "latencys": 1.0, "duration": 1.0, "durations": 1.0, "latencyms": 1e-3,
             "durationms": 1e-3, "e2elatency": 1.0, "e2es": 1.0, "responsetime": 1.0, "requesttimes": 1.0}
STATUSES = ("status", "statuscode", "httpstatus", "code", "responsecode")
UNSERVED = (429, 499)           # refused for load; the client left (nginx): demand, unlike other statuses from 400 on
SECOND, MILLISECOND = 1.0, 1e-3
UNKNOWN = -1                    # tokens that a row does not have


class Requests(NamedTuple):
    """Requests of a log, in order of their time.

    arrival_s : seconds since 1970, or of the log's own clock. prompt_tokens, output_tokens : `UNKNOWN`: not logged.
    resolution_s : of its times. notes : rows that were left out, a sentence each.
    """

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    resolution_s: float
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)


def read(source: Source, is_end: bool = False) -> Requests:
    """Return the requests of a log.

    is_end : its times are those of the end of a request; a latency is needed then.

    Raises
    ------
    InputErrors
        A column is missing; all faults of cells.
    """
    names = _columns(source, is_end)
    needed = {names[key]: float for key in ("num_prefill_tokens", "num_decode_tokens")}
    rows = source.rows({names["arrived_at"]: str} | dict.fromkeys(needed, str))
    times = _times(source, names["arrived_at"], rows)
    kept, left_out, tokens = [], 0, {key: [] for key in needed}
    for i, (line, row) in enumerate(rows):
        counts, status = {key: _tokens(source, line, key, row[key]) for key in needed}, _status(names, row)
        if 400 <= status < 500 and status not in UNSERVED:
            left_out += 1
            continue
        if status >= 400:                               # the answer was cut: its length is not known
            counts[names["num_decode_tokens"]] = UNKNOWN
        if is_end:
            times[i] -= _latency_s(source, names, line, row)
        kept.append(i)
        for key, count in counts.items():
            tokens[key].append(count)
    source.faults.raise_if_any()
    if not kept:
        raise InputErrors([f"{source.path}: no request in it that a server could have served"])
    prompt, output = (np.array(tokens[names[key]]) for key in ("num_prefill_tokens", "num_decode_tokens"))
    notes = (f"{source.path}: {left_out:,} requests with a status from 400 on, faults of clients, are left out.",)
    return in_order(times[kept], prompt, output, notes[:left_out > 0])


def in_order(times_s: np.ndarray, prompt: np.ndarray, output: np.ndarray, notes: tuple[str, ...] = ()) -> Requests:
    """Return requests sorted by time."""
    order = np.argsort(times_s, kind="stable")
    return Requests(times_s[order], prompt[order].astype(np.int64), output[order].astype(np.int64),
                    _resolution_s(times_s), notes)


def _columns(source: Source, is_end: bool) -> dict[str, str]:
    """Return the name in the file of each column that is read."""
    names, faults = {}, []
    looked_for = {key: (plain(key), *SYNONYMS[key]) for key in (
        "arrived_at", "num_prefill_tokens", "num_decode_tokens")}
    if is_end:
        looked_for["arrived_at"] += ("endtime", "endedat", "completedat", "finishedat")
    looked_for |= {"latency": tuple(LATENCIES), "status": STATUSES}
    for key, synonyms in looked_for.items():
        found = sorted(name for name in source.columns if plain(name) in synonyms)
        if len(found) > 1:
            faults.append(f"{source.path}: {', '.join(found)} may each be {key}; expected one of them")
        elif found:
            names[key] = found[0]
        elif key not in ("latency", "status") or (key == "latency" and is_end):
            faults.append(f'{source.path}: column "{key}" is missing; found {", ".join(sorted(source.columns))}; '
                          f"also read: {', '.join(synonyms[:4])}")
    if faults:
        raise InputErrors(faults)
    return names


def _times(source: Source, name: str, rows: list) -> np.ndarray:
    times, unit_s = np.zeros(len(rows)), None
    for i, (line, row) in enumerate(rows):
        text = row[name].strip()
        try:
            if text[4:5] == "-":
                instant = datetime.fromisoformat(text)
                times[i] = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
                continue
            value = float(text)
            unit_s = epoch_unit_s(value, "s") if unit_s is None else unit_s
            times[i] = value * unit_s
            if not abs(times[i]) < 1e12:
                raise ValueError
        except ValueError:
            source.faults.add_cell(line, name, "seconds, an epoch time or an ISO date", text)
    return times


def _tokens(source: Source, line: int, name: str, text: str) -> int:
    if not text.strip():
        return UNKNOWN
    try:
        value = int(float(text))
        if not 0 <= value < 2**31:
            raise ValueError
        return value
    except (ValueError, OverflowError):
        source.faults.add_cell(line, name, "a number of tokens, or nothing", text)
        return UNKNOWN


def _status(names: dict[str, str], row: dict) -> int:
    text = row.get(names.get("status", ""), "").strip() if "status" in names else ""
    if text.isdecimal():
        return int(text)
    return 200 if text.lower() in ("", "ok", "success", "stop", "length", "completed") else 500


def _latency_s(source: Source, names: dict[str, str], line: int, row: dict) -> float:
    name = names["latency"]
    try:
        value = float(row[name]) * LATENCIES[plain(name)]
        if 0 <= value < 1e9:
            return value
    except ValueError:
        pass
    source.faults.add_cell(line, name, "a latency", row[name])
    return 0.0


def _resolution_s(times_s: np.ndarray) -> float:
    """Return the unit in which all times are whole: a second, a millisecond, or 0."""
    for unit_s in (SECOND, MILLISECOND):
        if np.all(np.abs(times_s / unit_s - np.round(times_s / unit_s)) < 1e-3 * min(1, unit_s * 1e3) + 1e-9 / unit_s):
            return unit_s
    return UNITS_S["us"]
