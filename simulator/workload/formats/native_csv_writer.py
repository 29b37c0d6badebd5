"""A workload written as a native trace, which reads back to equal requests."""
import csv
from itertools import islice
from typing import TextIO

import numpy as np

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.base import Workload
from simulator.workload.budgets import NO_BUDGET, UNDECLARED, is_declared
from simulator.workload.items import is_image
from simulator.workload.known_times import starts_ns
from simulator.workload.limits import MAX_TIME_NS, MISSING


def write_trace(workload: Workload, file: TextIO, has_times: bool = True) -> None:
    """Write the requests in the format of `native_csv`, one row each, in their order.

    Warm-up requests are left out. Named token streams get new names: shared parts stay, their names are lost.

    Parameters
    ----------
    has_times : False: requests are released during the run; `arrived_at` is 0 then.

    Raises
    ------
    InputErrors
        A request that others refer to has an id with a separator in it.
    """
    ids = list(map(str, workload.request_ids))
    columns = {"request_id": ids, "arrived_at": _starts(workload) if has_times else ["0"] * len(ids),
               "num_prefill_tokens": _texts(workload.requests["prompt_tokens"]),
               "num_decode_tokens": _texts(workload.outcomes["output_tokens"]),
               **_prompts(workload, ids), **_demands(workload), **_plays(workload, ids)}
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(islice(zip(*columns.values(), strict=True), len(ids) - workload.num_warmups))


def seconds_text(time_ns: int) -> str:
    """Return a time >= 0 in seconds, exact to the nanosecond: 1500000000 is 1.5."""
    whole, rest = divmod(time_ns, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)


def _texts(values: np.ndarray, absent: int | None = None) -> list[str]:
    return ["" if value == absent else str(value) for value in values.tolist()]


def _seconds(values_ns: np.ndarray, absent: int | None = None) -> list[str]:
    return ["" if value == absent else seconds_text(value) for value in values_ns.tolist()]


def _starts(workload: Workload) -> list[str]:
    """Return when each request comes, or, with plays, when its play begins."""
    script, known_ns = workload.script, np.maximum(starts_ns(workload), 0)
    if script is None or script.play_begins is None:
        return _seconds(known_ns)
    return _seconds(np.repeat(known_ns, np.diff(script.play_begins)))


def _demands(workload: Workload) -> dict[str, list[str]]:
    """Return the columns that clients declare, without empty ones."""
    demands, facts, columns = workload.demands, workload.facts, {}
    if np.any(demands["priority"]):
        columns["priority"] = _texts(demands["priority"])
    if np.any(demands["max_tokens"] != np.maximum(workload.outcomes["output_tokens"], 1)):
        columns["max_tokens"] = _texts(np.where(is_declared(facts), demands["max_tokens"], UNDECLARED))
    timeout_ns = _timeouts(workload)
    if np.any(timeout_ns != MISSING):
        columns["deadline_s"] = _seconds(timeout_ns, MISSING)
    for label, names in workload.labels.items():
        if len(names):
            columns[label] = ["" if code < 0 else str(names[code]) for code in demands[label].tolist()]
    if np.any(demands["expected_tokens"] >= 0):
        columns["predicted_tokens"] = _texts(demands["expected_tokens"], -1)
    return columns | {fact: (_seconds if fact.endswith("_s") else _texts)(values, MISSING)
                      for fact, values in facts.items() if fact != NO_BUDGET}


def _timeouts(workload: Workload) -> np.ndarray:
    """Return the time after arrival until which each client waits, `MISSING`: not given."""
    if workload.script is not None:
        given = workload.script.timeout_ns
        return np.full(len(workload), MISSING) if given is None else given
    due_ns = workload.demands["due_ns"]
    since_ns = np.minimum(due_ns - workload.requests["arrival_ns"], MAX_TIME_NS)
    return np.where(due_ns == records.NEVER_NS, MISSING, since_ns)


def _prompts(workload: Workload, ids: list[str]) -> dict[str, list[str]]:
    """Return the column of prompts as segments stream:tokens/stream:tokens."""
    if not len(workload.segments):
        return {}
    owners = np.repeat(np.arange(len(ids)), workload.demands["num_segments"])
    is_other = workload.segments["stream"] != records.own_stream(owners)
    images = workload.segments["stream"][is_image(workload)]
    names = _stream_names(workload.segments["stream"][is_other], ids, set(images.tolist()))
    streams, num_tokens = workload.segments["stream"].tolist(), workload.segments["num_tokens"].tolist()
    texts = []
    for row, (begin, count) in enumerate(workload.demands[["segments_begin", "num_segments"]].tolist()):
        own = records.own_stream(row)
        texts.append("/".join(
            f"{'' if stream == own else names[stream]}:{tokens}"
            for stream, tokens in zip(streams[begin:begin + count], num_tokens[begin:begin + count], strict=True)))
    return {"prompt": texts}


def _stream_names(streams: np.ndarray, ids: list[str], images: set[int]) -> dict[int, str]:
    """Return a name for each stream: s0, s1, ... in order of appearance, s2.img, or ID.own and ID.out.

    Streams of requests beyond the table get names of the first kind.
    """
    codes, first_rows = np.unique(streams, return_index=True)
    names, rows = {}, codes >> 2
    for code, row in zip(codes[np.argsort(first_rows)].tolist(), rows[np.argsort(first_rows)].tolist(), strict=True):
        kind = {records.own_stream(row): "own", records.output_stream(row): "out"}.get(code, "")
        ending = ".img" if code in images else ""
        names[code] = f"{_referable(ids[row], '/')}.{kind}" if kind and row < len(ids) else f"s{len(names)}{ending}"
    return names


def _referable(name: str, separator: str) -> str:
    if separator in name:
        raise InputErrors([f'request_id "{name}": another request refers to it, so that it cannot be written with '
                           f'"{separator}" in it'])
    return name


def _plays(workload: Workload, ids: list[str]) -> dict[str, list[str]]:
    """Return the columns of plays and dependencies."""
    script = workload.script
    if script is None or script.play_begins is None:
        return {}
    sizes = np.diff(script.play_begins)
    columns = {"play": _texts(np.repeat(np.arange(len(sizes)), sizes))}
    if script.edges is not None:
        waits = [[] for _ in ids]
        for source, target, delay_ns, from_dispatch in zip(*(getattr(script.edges, name).tolist() for name in (
                "sources", "targets", "delays_ns", "from_dispatch")), strict=True):
            event = "start" if from_dispatch else "end"
            waits[target].append(f"{_referable(ids[source], '|')}:{event}+{seconds_text(delay_ns)}")
        columns["wait_for"] = list(map("|".join, waits))
    if script.offset_ns is not None and np.any(script.offset_ns):
        columns["not_before_s"] = _seconds(script.offset_ns, 0)
    return columns
