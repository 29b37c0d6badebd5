"""`csv`: the native request trace, one row a request; the first line names the columns, in any order.

Columns: arrived_at, num_prefill_tokens, num_decode_tokens (these three are required), request_id, prompt, priority,
max_tokens, deadline_s, slo_class, tenant, session, model, adapter; and for requests that wait for others round,
think_time_s, play, wait_for, not_before_s; predicted_tokens, reasoning_tokens, num_images, image_tokens.
"""
from pathlib import Path

import numpy as np

from simulator.domain.sessions import TraceSessions
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import FACTS, LABELS, Columns
from simulator.workload.formats.native_waits import COLUMNS as WAITS
from simulator.workload.formats.native_waits import turns_before, waits_of
from simulator.workload.formats.prompts import image_facts, images_in, prompts_of, rows_by_id
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.csv_scan import Column, Kind, Scan
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.tables import scan_columns

COLUMNS = {
    "arrived_at": Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True),
    "num_prefill_tokens": Column(Kind.INTEGER, 1, required=True),
    "num_decode_tokens": Column(Kind.INTEGER, 0, required=True),
    "request_id": Column(Kind.IDENTITY, required=True),
    "prompt": Column(Kind.PROMPT),
    "priority": Column(Kind.INTEGER, -2**31, 2**31 - 1),
    "max_tokens": Column(Kind.INTEGER, 1),
    "deadline_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    **{label: Column(Kind.TEXT) for label in LABELS},
    "round": Column(Kind.INTEGER, 0),
    "think_time_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    "play": Column(Kind.TEXT),
    "wait_for": Column(Kind.TEXT),
    "not_before_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    **{fact: Column(Kind.INTEGER, 0) for fact in FACTS},
}
# Of a fact: the column that it is a part of.
PART_OF = {"reasoning_tokens": "num_decode_tokens", "image_tokens": "num_prefill_tokens"}
REQUIRED = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


class NativeCsv:
    """The reader of native traces."""

    takes_sessions = True

    def __init__(self, parameters=None, sessions: TraceSessions = TraceSessions()):     # noqa: B008 (it is frozen)
        self._sessions = sessions

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            Everything that is wrong with the file, by line and column.
        """
        faults = Faults(path)
        scan = _scan(path, data)
        if "round" not in scan.values:
            self._refuse_rounds()
        ids = _request_ids(scan)
        if "request_id" in scan.values:
            _check_ids(scan, faults)
        _check_facts(scan, faults)
        prompts = prompts_of(scan, ids, faults) if "prompt" in scan.values else None
        images = images_in(scan) if prompts is not None else None
        shown = {} if images is None else image_facts(prompts, images)
        waits = None
        if any(column in scan.values for column in WAITS):
            waits = waits_of(scan, lambda: rows_by_id(ids, len(scan.lines)), self._sessions, faults)
        faults.raise_if_any()
        priority = scan.values.get("priority")
        return Columns(
            arrival_ns=scan.values["arrived_at"],
            prompt_tokens=scan.values["num_prefill_tokens"],
            output_tokens=scan.values["num_decode_tokens"],
            request_ids=ids,
            priority=None if priority is None else np.where(priority == MISSING, 0, priority),
            max_tokens=scan.values.get("max_tokens"),
            timeout_ns=scan.values.get("deadline_s"),
            labels={label: _label_of(scan, label) for label in LABELS if label in scan.values},
            facts=shown | {fact: scan.values[fact] for fact in FACTS if fact in scan.values},
            images=images,
            prompts=prompts,
            adds_to=turns_before(scan) if self._sessions.accumulate else None,
            waits=waits)

    def _refuse_rounds(self) -> None:
        keys = (("gap", "is between rounds", self._sessions.gap != "ignore"),
                ("accumulate", "a round adds to the one before it", self._sessions.accumulate))
        faults = [KeyFault(f"workload.sessions.{key}: {what}, and the trace has no column round")
                  for key, what, is_said in keys if is_said]
        if faults:
            raise InputErrors(faults)


def _scan(path, data: bytes) -> Scan:
    """Scan the file with integer request ids or, when one is not an integer, with ids as text."""
    faults = Faults(path)
    scan = scan_columns(path, data, COLUMNS, REQUIRED, faults, strict=True)
    if scan.ids_are_text:
        faults = Faults(path)
        as_text = COLUMNS | {"request_id": Column(Kind.TEXT, required=True)}
        scan = scan_columns(path, data, as_text, REQUIRED, faults, strict=True)
    faults.raise_if_any()
    return scan


def _check_ids(scan: Scan, faults: Faults) -> None:
    ids = scan.values["request_id"]
    if np.all(ids[1:] > ids[:-1]):
        return
    order = np.argsort(ids, kind="stable")
    for place in np.flatnonzero(ids[order][1:] == ids[order][:-1]):
        first, again = scan.lines[order[place]], order[place + 1]
        found = scan.texts["request_id"][ids[again]] if "request_id" in scan.texts else str(ids[again])
        faults.add_cell(scan.lines[again], "request_id", f"an id that is not that of line {first}", found)


def _check_facts(scan: Scan, faults: Faults) -> None:
    for part, whole in PART_OF.items():
        values = scan.values.get(part, np.empty(0, np.int64))
        for row in np.flatnonzero(values > scan.values[whole][:len(values)]):
            faults.add_cell(scan.lines[row], part, f"at most {whole}, {scan.values[whole][row]}", str(values[row]))
    images, tokens = scan.values.get("num_images"), scan.values.get("image_tokens")
    if images is not None and tokens is not None:
        for row in np.flatnonzero((images == 0) & (tokens > 0)):
            faults.add_cell(scan.lines[row], "image_tokens", "0, since num_images is 0", str(tokens[row]))


def _request_ids(scan: Scan):
    """Return the ids: int64 array, list of str, or None without the column."""
    if "request_id" not in scan.texts:
        return scan.values.get("request_id")
    texts = scan.texts["request_id"]
    return [texts[code] for code in scan.values["request_id"].tolist()]


def _label_of(scan: Scan, label: str) -> tuple:
    codes = scan.values[label]
    return np.where(codes == MISSING, -1, codes), scan.texts[label]
