"""`csv`: the native request trace, one row a request; the first line names the columns, in any order.

Tables with other column names (`native_names`) are read, too, and JSON Lines of flat objects (`json_rows`).

Columns: arrived_at, num_prefill_tokens, num_decode_tokens (these three are required), request_id, prompt, priority,
max_tokens, deadline_s, slo_class, tenant, session, model, adapter; and for requests that wait for others round,
think_time_s, play, wait_for, not_before_s; predicted_tokens, reasoning_tokens, num_images, image_tokens. An empty
cell of max_tokens means the output length, 0 no limit but the engine's window (`budgets`).
"""
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from simulator.domain.sessions import TraceSessions
from simulator.errors import InputErrors, KeyFault, number_of
from simulator.workload.columns import FACTS, LABELS, QUEUE_FACTS, Columns
from simulator.workload.formats.json_rows import as_csv, csv_pieces, is_json
from simulator.workload.formats.native_names import Names, NativeParameters, kind_of_times, names_of
from simulator.workload.formats.native_waits import COLUMNS as WAITS
from simulator.workload.formats.native_waits import turns_before, waits_of
from simulator.workload.formats.prompts import image_facts, images_in, prompts_of, rows_by_id
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.csv_scan import Column, Kind, Scan, Scanner
from simulator.workload.reading.epochs import unit_note
from simulator.workload.reading.faults import Faults, LeftOut, quoted
from simulator.workload.reading.files import check_text
from simulator.workload.reading.tables import scan_columns, scans_of

COLUMNS = {
    "arrived_at": Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True),
    "num_prefill_tokens": Column(Kind.INTEGER, 1, required=True),
    "num_decode_tokens": Column(Kind.INTEGER, 0, required=True),
    "request_id": Column(Kind.IDENTITY, required=True),
    "prompt": Column(Kind.PROMPT),
    "priority": Column(Kind.INTEGER, -2**31, 2**31 - 1),
    "max_tokens": Column(Kind.INTEGER, 0),         # 0: none is declared, see workload/budgets.py
    "deadline_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    **{label: Column(Kind.TEXT) for label in LABELS},
    "round": Column(Kind.INTEGER, 0),
    "think_time_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    "play": Column(Kind.TEXT),
    "wait_for": Column(Kind.TEXT),
    "not_before_s": Column(Kind.SECONDS, 0, MAX_TIME_NS),
    "strict_priority": Column(Kind.INTEGER, 0, 2**31 - 1),
    "priority_jump_s": Column(Kind.SECONDS, 0, 10**15),
    **{fact: Column(Kind.INTEGER, 0) for fact in FACTS},
}
# The column that includes each fact.
PART_OF = {"reasoning_tokens": "num_decode_tokens", "image_tokens": "num_prefill_tokens"}
REQUIRED = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
# Columns that can be read piece by piece; ids are left out, for they would have to be kept.
OF_PIECES = {name: COLUMNS[name] for name in (*REQUIRED, "priority", "session")} | {
    "max_tokens": Column(Kind.INTEGER, 1), "request_id": Column(Kind.IGNORE)}


class NativeCsv:
    """The reader of native traces, and of tables with other names."""

    Parameters = NativeParameters
    takes_sessions = True

    def __init__(self, parameters: NativeParameters | None = None,
                 sessions: TraceSessions = TraceSessions()):     # noqa: B008 (it is frozen)
        self._given, self._sessions = parameters or NativeParameters(), sessions

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            All faults of the file, by line and column.
        """
        has_objects, head = is_json(data), data[:data.find(b"\n") + 1] or data
        check_text(path, data if has_objects or head.isspace() else head)      # a table is checked when it is scanned
        first_line = 1 if has_objects else 2
        faults = LeftOut(path, first_line) if self._given.on_bad_row == "skip" else Faults(path)
        table = as_csv(path, data, faults) if has_objects else data
        names, kind = self._names(path, table)
        scan = _scan(path, table, names, kind, first_line, faults)
        if "round" not in scan.values:
            self._refuse_rounds()
        if not isinstance(faults, LeftOut):
            return replace(self._columns(scan, faults), notes=names.notes + self._notes(path, scan))
        total, unread = len({*scan.lines.tolist(), *faults.lines}), len(faults.lines)
        faults.note(total)
        scan = without_lines(scan, faults.lines)
        columns = self._columns(scan, faults)
        notes = faults.note(total)
        if len(faults.lines) > unread:          # some of the readable lines do not fit the others
            columns = self._columns(without_lines(scan, faults.lines), Faults(path))
        return replace(columns, notes=(*names.notes, *self._notes(path, scan), *notes))

    def parts(self, path: str | Path, pieces: Iterable[bytes]) -> Iterator[Columns]:
        """Yield the requests of each piece at the times of the file, then the notes.

        Raises
        ------
        InputErrors
            All faults of the file, by line and column; a column that cannot be read piece by piece.
        """
        faults, pieces = Faults(path), iter(pieces)
        first = next(pieces, b"")
        check_text(path, first)
        has_objects, tables = is_json(first), chain((first,), pieces)
        if has_objects:
            tables = csv_pieces(path, tables, faults)
        table = next(tables)
        names, kind = self._names(path, table)
        for name, native in names.native.items():
            if native not in OF_PIECES:
                faults.add(0, f"column {quoted(name)}: is read without output.streamed alone: it needs other requests, "
                              "or a sum of its own")
        faults.raise_if_any()
        self._refuse_rounds()
        columns, required = _columns_of(names, OF_PIECES, kind)
        num_in_sessions, scan = 0, None
        for scan in scans_of(path, chain((table,), tables), columns, required, faults, not names.is_foreign,
                             1 if has_objects else 2):
            scan = _in_native_names(scan, names)
            num_in_sessions += np.count_nonzero(scan.values.get("session", MISSING) != MISSING)
            if not faults:
                yield self._columns(scan, faults)
        faults.raise_if_any()
        notes = names.notes + self._notes_on_sessions(path, num_in_sessions - len(scan.texts.get("session", ())))
        if "request_id" in names.native.values():
            notes += (f"{path}: {names.of_file['request_id']} is not read, and may hold an id twice: [output] streamed "
                      "numbers requests by their rows.",)
        yield Columns(*np.empty((3, 0), np.int64), notes=notes)

    def _names(self, path, table: bytes) -> tuple[Names, int]:
        """Return the names of the columns, and the kind of times; table : begins with a header."""
        found = header_of(path, table)
        names = names_of(str(path), found, COLUMNS, self._given.columns)
        column = names.of_file.get("arrived_at")
        kind, unit_s = Kind.SECONDS, 1.0
        if column is not None:
            kind, unit_s = kind_of_times(table, found.index(column), self._given.time_unit)
        return names._replace(notes=names.notes + unit_note(path, column, unit_s, "s")), kind

    def _notes(self, path, scan: Scan) -> tuple[str, ...]:
        if self._sessions.accumulate or "prompt" in scan.values or "session" not in scan.values:
            return ()
        return self._notes_on_sessions(
            path, int(np.count_nonzero(scan.values["session"] != MISSING)) - len(scan.texts["session"]))

    def _notes_on_sessions(self, path, later: int) -> tuple[str, ...]:
        """Return a note if requests of a session share nothing because the trace does not give shared parts.

        later : requests that follow others of their session.
        """
        how = ", or tell what each adds with a column round and sessions = {accumulate = true}"
        return (f"{path}: {number_of(later, 'request')} that follow others of their session share no token with them, "
                f"and no cache finds any: there is no column prompt; give one{how}.",) if later > 0 else ()

    def _columns(self, scan: Scan, faults: Faults) -> Columns:
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
            facts=shown | {fact: scan.values[fact] for fact in (*FACTS, *QUEUE_FACTS)
                           if fact in scan.values},
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


def header_of(path, table: bytes) -> list[str]:
    """Return the names in the first line."""
    faults = Faults(path)
    names = Scanner(table[:table.find(b"\n") + 1] or table, faults).header()
    faults.raise_if_any()
    return names


def _scan(path, table: bytes, names: Names, kind_of_times: int, first_line: int, faults: Faults) -> Scan:
    """Scan the table with integer request ids or, when one is not an integer, with ids as text."""
    known = COLUMNS
    kept = faults if isinstance(faults, LeftOut) else Faults(path)
    while True:
        columns, required = _columns_of(names, known, kind_of_times)
        scan = scan_columns(path, table, columns, required, kept, strict=not names.is_foreign, first_row=first_line)
        if not scan.ids_are_text:
            break
        known = COLUMNS | {"request_id": Column(Kind.TEXT, required=True)}
        kept = faults if isinstance(faults, LeftOut) else Faults(path)
    kept.raise_if_any()
    return _in_native_names(scan, names)


def _columns_of(names: Names, known: dict[str, Column], kind_of_times: int) -> tuple[dict, tuple[str, ...]]:
    """Return the columns to scan, by their names in the file; names of required ones."""
    known = known | {"arrived_at": known["arrived_at"]._replace(kind=kind_of_times)}
    columns = {name: known[native] for name, native in names.native.items()} if names.is_foreign else known
    return columns, tuple(names.of_file.get(name, name) for name in REQUIRED)


def _in_native_names(scan: Scan, names: Names) -> Scan:
    return scan._replace(
        values={names.native.get(name, name): values for name, values in scan.values.items()},
        texts={names.native.get(name, name): texts for name, texts in scan.texts.items()})


def without_lines(scan: Scan, lines: Iterable[int]) -> Scan:
    """Return a scan without the rows that begin on some lines."""
    stays = ~np.isin(scan.lines, list(lines))
    values, segments = scan.values, scan.segments
    if "prompt" in values:
        kept = np.repeat(stays, np.maximum(values["prompt"], 0))
        segments = tuple(each[kept] for each in segments)
    return scan._replace(values={name: each[stays] for name, each in values.items()}, segments=segments,
                         lines=scan.lines[stays])


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
