"""Foreign names of a trace's columns, and the units of its times."""
import csv
import io
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault, did_you_mean, nearest
from simulator.workload.reading.csv_scan import Kind
from simulator.workload.reading.epochs import UNITS_S, epoch_unit_s
from simulator.workload.reading.faults import quoted

# Their names in logs of servers, gateways and load generators, and in public traces, written as by `plain`.
SYNONYMS = {
    "arrived_at": ("timestamp", "ts", "time", "datetime", "date", "arrival", "arrivaltime", "arrivaltimestamp",
                   "arrivaltimes", "createdat", "createdtime", "starttime", "startedat", "requesttime",
                   "requesttimestamp", "receivedat", "sentat", "sendtime"),
    "num_prefill_tokens": ("inputtokens", "inputlength", "inputlen", "numinputtokens", "prompttokens", "promptlength",
                           "promptlen", "numprompttokens", "prefilltokens", "contexttokens", "requesttokens", "isl"),
    "num_decode_tokens": ("outputtokens", "outputlength", "outputlen", "numoutputtokens", "completiontokens",
                          "numcompletiontokens", "generatedtokens", "generationtokens", "decodetokens",
                          "responsetokens", "osl"),
    "request_id": ("id", "requestid"),
    "session": ("sessionid", "conversationid", "chatid"),
}
KINDS = {"s": Kind.SECONDS, "ms": Kind.MILLISECONDS, "us": Kind.MICROSECONDS, "ns": Kind.NANOSECONDS}


class NativeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of columns in a table of requests."""

    columns: Annotated[dict[str, str], Meta(description=(
        "column of a native trace -> its name in the file; usual names of arrived_at, num_prefill_tokens, "
        "num_decode_tokens, request_id and session are known"))] = {}
    time_unit: Annotated[Literal["auto", "s", "ms", "us", "ns"], Meta(description=(
        "of arrived_at; auto: dates in ISO 8601, epoch times in any unit, else seconds"))] = "auto"
    on_bad_row: Annotated[Literal["refuse", "skip"], Meta(description=(
        "a row that cannot be read: refuse: the trace is refused; skip: the row is left out and counted"))] = "refuse"


class Names(NamedTuple):
    """The mapping of a file's columns.

    native : column of the file -> column of a native trace.
    notes : notes on the mapping.
    """

    native: dict[str, str]
    notes: tuple[str, ...]

    @property
    def of_file(self) -> dict[str, str]:
        """Return the inverse mapping."""
        return {native: name for name, native in self.native.items()}

    @property
    def is_foreign(self) -> bool:
        """Return whether the file has names of its own."""
        return any(name != native for name, native in self.native.items())


def names_of(path: str, found: list[str], known: dict, given: dict[str, str]) -> Names:
    """Return the mapping of a file's columns to columns of a native trace.

    Parameters
    ----------
    known : the columns of a native trace.
    given : names in the experiment's `columns`.

    Raises
    ------
    InputErrors
        A name that is no column; two columns that may be one.
    """
    native, faults = {name: name for name in found if name in known}, []
    for column, name in given.items():
        if column not in known:
            faults.append(KeyFault(f"workload.columns.{column}: no column of a native trace"
                                   f"{did_you_mean(column, known)}"))
        elif name not in found:
            faults.append(KeyFault(f'workload.columns.{column}: {path} has no column "{name}"'
                                   f"{did_you_mean(name, found)}"))
        else:
            native = {each: other for each, other in native.items() if other != column} | {name: column}
    for column, synonyms in SYNONYMS.items():
        if column in native.values() or column in given:
            continue
        same = [name for name in dict.fromkeys(found) if name not in native and plain(name) in synonyms]
        if len(same) > 1:
            columns = ", ".join(f'"{name}"' for name in same)
            faults.append(f"{path}:1: {columns} may each be {column}; [workload] columns = {{{column} = "
                          f'"{same[0]}"}} says which')
        elif same:
            native[same[0]] = column
    if not faults:
        faults = [_missing(path, column, found, native) for column in SYNONYMS
                  if known[column].required and column != "request_id" and column not in native.values()]
    if faults:
        raise InputErrors(faults)
    names = Names(native, ())
    return names._replace(notes=_notes(path, found, names)) if names.is_foreign else names


def _missing(path: str, column: str, found: list[str], native: dict[str, str]) -> str:
    close = nearest(column, [name for name in found if name not in native])
    return (f'{path}:1: column "{column}" is missing; found {quoted(", ".join(found))}{close}; [workload] columns = '
            f'{{{column} = "..."}} says what it is called here')


def _notes(path: str, found: list[str], names: Names) -> tuple[str, ...]:
    read = ", ".join(f"{name} as {native}" for name, native in names.native.items() if name != native)
    rest = [name for name in dict.fromkeys(found) if name not in names.native]
    ignored = f"; not looked at: {', '.join(rest)}" if rest else ""
    return (f"{path}: {read}{ignored}.",)


def plain(name: str) -> str:
    """Return a name in lower case, letters and digits only."""
    return "".join(character for character in name.lower() if character.isalnum())


def kind_of_times(data: bytes, column: int, unit: str) -> tuple[int, float]:
    """Return the kind of a column of times and its unit, s, by its first value.

    data : the table.
    unit : as `NativeParameters.time_unit`.
    """
    if unit != "auto":
        return KINDS[unit], 1.0
    for row in _rows_at_top(data):
        text = row[column].strip() if len(row) > column else ""
        if text[4:5] == "-" and text[7:8] == "-":
            return Kind.TIMESTAMP, 1.0
        try:
            unit_s = epoch_unit_s(float(text), "s")
        except ValueError:
            continue
        return KINDS[next(name for name, value in UNITS_S.items() if value == unit_s)], unit_s
    return Kind.SECONDS, 1.0


def _rows_at_top(data: bytes) -> list[list[str]]:
    """Return some rows below the first line."""
    text = data[:TOP_BYTES].decode(errors="replace")
    try:
        return list(csv.reader(io.StringIO(text, newline="")))[1:]
    except csv.Error:
        return []


TOP_BYTES = 2**14
