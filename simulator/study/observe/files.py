"""Files of a measurement: observed.csv while requests end, token_times.h5 when all have."""
import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from simulator.core.hdf5_target import new_hdf5
from simulator.domain import records
from simulator.results.directory import tables_contents
from simulator.study.observe.answer import OK
from simulator.study.observe.sender import Seen
from simulator.workload.base import Workload
from simulator.workload.formats.observed_columns import COLUMNS

OBSERVED, TIMES, SERVER, TRACE = "observed.csv", "token_times.h5", "server.json", "trace.csv"
TRACE_V2, TRACE_V2_HEADER = "trace_v2.csv", "trace_v2.yaml"
CONTENTS = tables_contents(
    "observe", r"observed(\.part-\d+)?\.csv|token_times\.h5|server\.json|trace\.csv|trace_v2\.(csv|yaml)|"
    r"metrics\.jsonl|compare\.json")


class Names(NamedTuple):
    """Names in the rows; "" for none.

    rounds : number of each request in its session. prompt_tokens : where they are known beforehand.
    """

    ids: list[str]
    sessions: list[str]
    rounds: list[str]
    prompt_tokens: list[int | str]


def names_of(workload: Workload, knows_prompts: bool) -> Names:
    """Return the names of a workload's rows.

    A play of several requests is a session where the workload has no names for sessions.

    knows_prompts : prompts are sent as tokens, so that their lengths are known without the server.
    """
    count = len(workload)
    labels = [*map(str, workload.labels.get("session", ())), ""]
    sessions = [labels[code] for code in workload.demands["session"].tolist()]
    script = workload.script
    if script is not None and script.play_begins is not None and not any(sessions):
        sizes = np.diff(script.play_begins)
        plays = np.repeat(np.arange(len(sizes)), sizes).tolist()
        sessions = [str(play) if sizes[play] > 1 else "" for play in plays] + [""] * (count - len(plays))
    rounds, seen = [""] * count, {}
    for row, session in enumerate(sessions):
        if session:
            rounds[row] = str(seen.get(session, 0))
            seen[session] = seen.get(session, 0) + 1
    prompts = workload.requests["prompt_tokens"].tolist() if knows_prompts else [""] * count
    return Names(list(map(str, workload.request_ids)), sessions, rounds, prompts)


class ObservedFile:
    """observed.csv: a row is written as soon as its request has ended.

    Rows are flushed, so that a crash does not lose them.
    """

    def __init__(self, path: Path, names: Names):
        self._file = open(path, "w", encoding="utf-8", newline="")      # noqa: SIM115 -- until close()
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._names = names
        self._writer.writerow(COLUMNS)
        self._file.flush()

    def add(self, seen: Seen, first_ns: int) -> None:
        """Write a request that has ended.

        first_ns : planned time of the first measured request, 0 of the times in the file.
        """
        self._writer.writerow(self._cells(seen, first_ns))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _cells(self, seen: Seen, first_ns: int) -> list:
        names, row, answer = self._names, seen.row, seen.answer
        sent_ns, is_ok = answer.sent_ns, answer.status == OK
        input_tokens = names.prompt_tokens[row] if answer.input_tokens is None else answer.input_tokens
        return [
            names.ids[row], _seconds(seen.planned_ns, first_ns), _seconds(sent_ns, first_ns),
            _seconds(answer.first_token_ns, sent_ns), _seconds(answer.last_token_ns, sent_ns) if is_ok else "",
            _seconds(answer.first_message_ns, sent_ns), input_tokens,
            *("" if value is None else value for value in (answer.output_tokens, answer.cached_tokens)),
            *((len(answer.tokens), sum(answer.batched)) if answer.first_message_ns is not None else ("", "")),
            answer.status, answer.error, answer.finish_reason or "", names.sessions[row], names.rounds[row]]


def _seconds(time_ns: int | None, since_ns: int | None) -> str:
    """Return seconds to the nanosecond, "" where there is no time."""
    return "" if time_ns is None or since_ns is None else f"{(time_ns - since_ns) / 1e9:.9f}"


def in_order(directory: Path, names: Names, unsent: Iterable[int]) -> None:
    """Sort the rows of observed.csv, and of its parts, by their plan.

    Requests that were not sent follow, since one that they wait for failed, or their load had ended.
    """
    path, rows = directory / OBSERVED, []
    parts = sorted(directory.glob("observed.part-*.csv"))
    for each in [path] * path.exists() + parts:
        with open(each, encoding="utf-8", newline="") as file:
            rows += list(csv.reader(file))[1:]
    place = COLUMNS.index("planned_s")
    rows.sort(key=lambda row: float(row[place]))
    rows += [_unsent(names, row) for row in unsent]
    staged = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with open(staged, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    os.replace(staged, path)
    for each in parts:
        each.unlink()


def _unsent(names: Names, row: int) -> list[str]:
    cells = dict.fromkeys(COLUMNS, "") | {
        "request_id": names.ids[row], "status": "not_sent", "session": names.sessions[row], "round": names.rounds[row],
        "error": "what it waits for did not come to its end, or the load had ended"}
    return list(cells.values())


def write_times(directory: Path, ids: list[str], found: list[Seen], first_ns: int) -> None:
    """Write token_times.h5 of requests that have ended.

    /request_id, /client_queue_ns : (n,), in the order of observed.csv; the time that each waited for a place in
    flight. /token_times/offsets : int64 (n + 1,), start of each request's messages. times_ns : read time of a message,
    in ns after the first planned request. tokens : in the message. batched : 1, read together with the one before it.
    """
    found = sorted(found, key=lambda seen: seen.planned_ns)
    with new_hdf5(directory / TIMES) as file:
        file["request_id"] = np.array([ids[seen.row].encode() for seen in found], dtype=h5py.string_dtype())
        file["client_queue_ns"] = np.array([seen.free_ns - seen.planned_ns for seen in found], np.int64)
        group = file.create_group("token_times")
        group["offsets"] = np.cumsum([0, *(len(seen.answer.times_ns) for seen in found)], dtype=np.int64)
        for name, dtype, shift in (("times_ns", np.int64, first_ns), ("tokens", np.int32, 0), ("batched", np.int8, 0)):
            values = [np.frombuffer(getattr(seen.answer, name), dtype) for seen in found]
            joined = np.concatenate(values or [np.empty(0, dtype)]) - dtype(shift)
            group.create_dataset(name, data=joined, compression="gzip", shuffle=True, compression_opts=1)


def note_in(workload: Workload, seen: Seen, first_ns: int) -> None:
    """Write the outcome of a request into the workload, as a run does."""
    request, answer = workload.requests[seen.row], seen.answer
    request["arrival_ns"] = (seen.planned_ns if answer.sent_ns is None else answer.sent_ns) - first_ns
    if answer.first_token_ns is not None:
        request["first_token_ns"] = answer.first_token_ns - first_ns
    request["output_tokens"] = answer.output_tokens or 0
    if answer.status == OK:
        request["status"], request["completed_ns"] = records.COMPLETED, answer.last_token_ns - first_ns
    else:
        request["status"] = records.TIMED_OUT if answer.status in ("timeout", "gave_up") else records.FAILED
