"""JSON Lines as structs, one a line, and their faults by line and key."""
import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import MAX_LINE_BYTES
from simulator.workload.reading.json_scan import JsonKey, JsonKind

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


def keys_of(kind) -> dict[str, JsonKey]:
    """Return the keys of a line, for `scan_lines`.

    kind : a msgspec.Struct, the content of a line.
    """
    return {field.encode_name: _key_of(field.type, field.required) for field in inspect.type_info(kind).fields}


def _key_of(kind, is_required: bool) -> JsonKey:
    given = [each for each in getattr(kind, "types", (kind,)) if not isinstance(each, inspect.NoneType)]
    if len(given) == 1 and isinstance(given[0], inspect.ListType) and isinstance(given[0].item_type, inspect.IntType):
        return _bounded(JsonKind.INTEGERS, given[0].item_type, is_required)
    if len(given) == 1 and isinstance(given[0], inspect.IntType | inspect.FloatType):
        is_integer = isinstance(given[0], inspect.IntType)
        return _bounded(JsonKind.INTEGER if is_integer else JsonKind.NUMBER, given[0], is_required)
    if {type(each) for each in given} <= {inspect.StrType, inspect.IntType} and not any(map(_is_bounded, given)):
        return JsonKey(JsonKind.TEXT if len(given) == 1 else JsonKind.NAME, required=is_required)
    return JsonKey(JsonKind.OTHER, required=is_required)


def _bounded(kind: JsonKind, of, is_required: bool) -> JsonKey:
    bounds = {name: bound for name, bound in (("low", of.ge), ("high", of.le)) if bound is not None}
    return JsonKey(kind if (of.gt, of.lt, of.multiple_of) == (None,) * 3 else JsonKind.OTHER, required=is_required,
                   **bounds)


def _is_bounded(of) -> bool:
    return any(getattr(of, name) is not None for name in of.__struct_fields__)


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
