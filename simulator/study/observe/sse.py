r"""Server-sent events from bytes in pieces of any size.

Source: WHATWG, HTML Living Standard, section 9.2.6 (parsing an event stream): UTF-8 without its byte order mark, lines
that end with \n, \r\n or \r, events that end with an empty line, `data:` lines joined by \n, lines that begin with `:`
are comments. An event without an empty line at its end is discarded.
"""
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its `event:` field, "" for none, and its data as UTF-8."""

    name: str
    data: bytes


class EventParser:
    """Splits a stream into events.

    The reader of the data decodes the characters; the data of an event are whole.
    """

    def __init__(self):
        self._rest = b""
        self._began = False         # the byte order mark, if any, has been read
        self._skips_lf = False      # the last byte was \r; a \n may follow

    def feed(self, received: bytes) -> list[Event]:
        """Return the events that are complete with these bytes."""
        if self._skips_lf and received:
            received = received[1:] if received.startswith(b"\n") else received
            self._skips_lf = False
        if b"\r" in received:
            self._skips_lf = received.endswith(b"\r")
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += received
        if not self._began:
            if BYTE_ORDER_MARK.startswith(self._rest[:3]) and len(self._rest) < 3:
                return []
            self._rest, self._began = self._rest.removeprefix(BYTE_ORDER_MARK), True
        *blocks, self._rest = self._rest.split(b"\n\n")
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> Event | None:
    """Return the event of the lines of a block; None: it has no data."""
    if block.startswith(b"data: ") and b"\n" not in block:     # nearly all
        return Event("", block[6:])
    name, data = "", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return Event(name, b"\n".join(data)) if data else None
