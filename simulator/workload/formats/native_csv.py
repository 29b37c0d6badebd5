"""`csv`: the native request trace, one row a request; the first line names the columns, in any order.

Columns: arrived_at, num_prefill_tokens, num_decode_tokens (these three are required), request_id, prompt, priority,
max_tokens, deadline_s, slo_class, tenant, session, model, adapter, round, think_time_s, predicted_tokens,
reasoning_tokens, num_images, image_tokens.
"""
from pathlib import Path

import numpy as np

from simulator.errors import did_you_mean
from simulator.workload.columns import FACTS, LABELS, Columns
from simulator.workload.formats.prompts import prompts_of
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.csv_scan import Column, Kind, Scan, Scanner
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text

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
    **{fact: Column(Kind.INTEGER, 0) for fact in FACTS},
}
# Of a fact: the column that it is a part of.
PART_OF = {"reasoning_tokens": "num_decode_tokens", "image_tokens": "num_prefill_tokens"}
REQUIRED = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


class NativeCsv:
    """The reader of native traces."""

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            Everything that is wrong with the file, by line and column.
        """
        faults = Faults(path)
        scan = _scan(path, data)
        ids = _request_ids(scan)
        if "request_id" in scan.values:
            _check_ids(scan, faults)
        if "round" in scan.values:
            _check_rounds(scan, faults)
        _check_facts(scan, faults)
        prompts = prompts_of(scan, ids, faults) if "prompt" in scan.values else None
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
            facts={fact: scan.values[fact] for fact in FACTS if fact in scan.values},
            prompts=prompts)


def scan_columns(path: str | Path, data: bytes, known: dict[str, Column], required: tuple[str, ...], faults: Faults,
                 strict: bool = False) -> Scan:
    """Scan a CSV file.

    Parameters
    ----------
    known : the columns that are read; others are ignored, or with `strict` a fault.
    required : names of columns that must be there.

    Raises InputErrors for a first line that does not fit and for a file without rows; collects faults of rows.
    """
    check_text(path, data)
    scanner = Scanner(data, faults)
    names = scanner.header()
    for name in dict.fromkeys(names):
        if strict and name not in known:
            faults.add(1, f"unknown column {quoted(name)}{did_you_mean(name, known)}")
        if name in known and names.count(name) > 1:
            faults.add(1, f'column "{name}" stands there {names.count(name)} times')
    for name in required:
        if name not in names:
            faults.add(1, f'column "{name}" is missing; found {quoted(", ".join(names))}')
    faults.raise_if_any()
    scan = scanner.rows([known.get(name, Column(Kind.IGNORE)) for name in names])
    if not len(scan.lines):
        faults.add(0, "there are no rows below the first line")
    return scan


def read_integer_column(path: str | Path, data: bytes, column: str) -> np.ndarray:
    """Return one column of a CSV file, int64: integers from 0 to 2**31 - 1."""
    faults = Faults(path)
    scan = scan_columns(path, data, {column: Column(Kind.INTEGER, required=True)}, (column,), faults)
    faults.raise_if_any()
    return scan.values[column]


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


def _check_rounds(scan: Scan, faults: Faults) -> None:
    for row in np.flatnonzero(scan.values["round"] > 0):
        faults.add_cell(scan.lines[row], "round", (
            "0, since a trace is replayed as it was recorded and no turn can wait for the one before it"),
            str(scan.values["round"][row]))


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
