"""JSON Lines as structs, one a line, and their faults by line and key."""
import re
from collections.abc import Iterator

import msgspec

from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import MAX_LINE_BYTES

PLAIN_WORDS = {"int": "an integer", "float": "a number", "array": "a list", "str": "text", "object": "an object",
               "bool": "true or false"}


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and text of each line that is not blank."""
    for number, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n"), start=1):
        if text and not text.isspace():
            yield number, text


def decoded_lines(data: bytes, kind, what: str, faults: Faults, after: int = 0) -> list[tuple[int, object]]:
    """Return the number and content of each line.

    Parameters
    ----------
    kind : a msgspec.Struct, the content of a line.
    what : keys of a line, for the message if all are missing.
    faults : collects the faults of lines that cannot be decoded.
    after : the number of a header's line; lines up to it are skipped.
    """
    decoder = msgspec.json.Decoder(kind)
    decoded = []
    for number, text in numbered_lines(data):
        if number <= after:
            continue
        if len(text) > MAX_LINE_BYTES:
            faults.add(number, f"a line of more than {MAX_LINE_BYTES:,} bytes")
            continue
        try:
            decoded.append((number, decoder.decode(text)))
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(number, text, error, what, faults)
    return decoded


def refuse(number: int, text: bytes, error: Exception, what: str, faults: Faults) -> None:
    """Add the fault of a line that cannot be decoded, by key if that is known."""
    explanation, _, key = re.fullmatch(r"(?s)(.*?)( - at `\$\.?(.*?)`)?", str(error)).groups()
    if not key:
        faults.add(number, f"expected a JSON object with {what}: {explanation}")
        return
    if explanation.startswith("Object"):            # an object inside lacks a key
        faults.add(number, f"{key}: {explanation}")
        return
    expected = re.sub(r", got .*", "", explanation).replace("Expected", "expected")
    expected = re.sub(r"`([a-z| ]+)`", _plain, expected)
    try:
        found = bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])[re.split(r"[.\[]", key)[0]]).decode()
    except (msgspec.DecodeError, RecursionError):       # the line is broken further on
        found = text.decode()
    faults.add(number, f"{key}: {expected}, found {found[:60]}")


def _plain(types: re.Match) -> str:
    """Return msgspec's names of JSON types in plain words."""
    return " or ".join(PLAIN_WORDS.get(name, name) for name in types[1].split(" | ") if name != "null")
