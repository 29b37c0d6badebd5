"""JSON Lines of flat objects as a table."""
import csv
import io

import msgspec

from simulator.errors import InputErrors
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import MAX_LINE_BYTES
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
    if data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        raise InputErrors([f"{path}:1: a JSON array; expected CSV, or JSON Lines: one object a line"])
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    rows, names = {}, {}
    for number, text in numbered_lines(data):
        if len(text) > MAX_LINE_BYTES:
            faults.add(number, f"a line of more than {MAX_LINE_BYTES:,} bytes")
            continue
        try:
            rows[number] = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(number, text, error, EXPECTED, faults)
            continue
        names |= dict.fromkeys(rows[number])
    if "hash_ids" in names:
        raise InputErrors([f'{path}:{next(iter(rows))}: hash_ids: lines of Mooncake\'s format have them; format = '
                           '"mooncake" reads them, and "timed_trace" and "bailian" two others'])
    faults.raise_if_any()
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(names)
    last = 0
    for number, row in rows.items():
        table.write("\n" * (number - last - 1))
        writer.writerow([_cell(row.get(name)) for name in names])
        last = number
    return table.getvalue().encode()


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
