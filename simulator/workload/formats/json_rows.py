"""JSON Lines of flat objects as a table."""
import csv
import io
from collections.abc import Iterable, Iterator

import msgspec

from simulator.errors import InputErrors
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import MAX_LINE_BYTES, check_text
from simulator.workload.reading.json_lines import numbered_lines, refuse

EXPECTED = "arrived_at, num_prefill_tokens, num_decode_tokens, or usual names of these"


def is_json(data: bytes) -> bool:
    """Return whether a text begins like JSON."""
    return data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def as_csv(path: str, data: bytes, faults: Faults) -> bytes:
    """Return the objects as CSV.

    The CSV has a header, so that each object is one line later than in the file.

    Raises
    ------
    InputErrors
        One document, not one object a line; lines of another format.
    """
    rows = _objects(path, data, faults)
    faults.raise_if_any()
    names = _keys(rows)
    return _line(names) + _table(rows, names)


def csv_pieces(path: str, pieces: Iterable[bytes], faults: Faults) -> Iterator[bytes]:
    """Yield the objects of each piece of a file as CSV, the first with a header.

    Raises
    ------
    InputErrors
        As `as_csv`; text that is not UTF-8; all lines that cannot be decoded, or have keys that the first piece lacks.
    """
    names, lines_before = None, 0
    for piece in pieces:
        check_text(path, piece, lines_before)
        rows = _objects(path, piece, faults, lines_before)
        head, names = (b"", names) if names else (_line(_keys(rows)), _keys(rows))
        for number, row in rows.items():
            for key in row.keys() - names.keys():
                faults.add(lines_before + number, f"{quoted(key)}: no line in the first {lines_before:,} has this key")
        num_lines = piece.count(b"\n")
        if not faults:
            yield head + _table(rows, names, num_lines)
        lines_before += num_lines
    faults.raise_if_any()


def _objects(path: str, data: bytes, faults: Faults, lines_before: int = 0) -> dict[int, dict[str, msgspec.Raw]]:
    """Return the objects by their line in `data`."""
    if data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        raise InputErrors([f"{path}:1: a JSON array; expected CSV, or JSON Lines: one object a line"])
    decoder, rows = msgspec.json.Decoder(dict[str, msgspec.Raw]), {}
    for number, text in numbered_lines(data):
        if len(text) > MAX_LINE_BYTES:
            faults.add(lines_before + number, f"a line of more than {MAX_LINE_BYTES:,} bytes")
            continue
        try:
            rows[number] = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(lines_before + number, text, error, EXPECTED, faults)
    if any("hash_ids" in row for row in rows.values()):
        raise InputErrors([f"{path}:{lines_before + next(iter(rows))}: hash_ids: lines of Mooncake's format have them; "
                           'format = "mooncake" reads them, and "timed_trace" and "bailian" two others'])
    return rows


def _keys(rows: dict[int, dict[str, msgspec.Raw]]) -> dict[str, None]:
    return {name: None for row in rows.values() for name in row}


def _table(rows: dict[int, dict[str, msgspec.Raw]], names: Iterable[str], num_lines: int = 0) -> bytes:
    """Return the rows, each on its line; num_lines : at least so many lines."""
    table, last = io.StringIO(), 0
    writer = csv.writer(table, lineterminator="\n")
    for number, row in rows.items():
        table.write("\n" * (number - last - 1))
        writer.writerow([_cell(row.get(name)) for name in names])
        last = number
    table.write("\n" * (num_lines - last))
    return table.getvalue().encode()


def _line(cells: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


def _cell(value: msgspec.Raw | None) -> str:
    """Return a value as a cell holds it; a text on one line."""
    if value is None:
        return ""
    text = bytes(value)
    if text == b"null":
        return ""
    if text[:1] == b'"':
        return " ".join(msgspec.json.decode(text).splitlines())
    return text.decode().replace("\n", " ")
