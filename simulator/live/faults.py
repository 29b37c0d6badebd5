"""Faults that an admin orders: errors for answers, and connections that break.

Names: types of llm-d-inference-sim@eec055a3, docs/configuration.md, failure-types, and ways in which a stream dies of
doublewordai/inference-lab@24d40112, src/serve/fault.rs, as specs/serve.md quotes them, section 11.
"""
import socket
import struct
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.live.bodies import Refused

TYPES = {
    "rate_limit": (429, "Rate limit reached.", "Too Many Requests"),
    "invalid_api_key": (401, "The API key is not valid.", "Unauthorized"),
    "context_length": (400, "The prompt is longer than the context of the model.", "BadRequestError"),
    "server_error": (503, "The server is overloaded.", "Service Unavailable"),
    "invalid_request": (400, "The request is not valid.", "BadRequestError"),
    "model_not_found": (404, "The model does not exist.", "NotFoundError"),
}
CANCELLED = (499, "The request was cancelled.", "Cancelled")
LINGER = struct.pack("ii", 1, 0)                # a socket that closes resets its connection
Type = Literal["rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found"]
Way = Literal["cut_between_frames", "cut_mid_frame", "reset", "stall", "error_envelope_200", "error_400_in_sse",
              "no_done", "no_usage", "cancelled_499"]


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/faults.

    rate : share of the requests that are hit; 0: none. types : of the errors, drawn with equal shares. fault : the way
    in which an answer breaks, in place of an error. after : events of a stream before it does.
    """

    rate: Annotated[float, Meta(ge=0, le=1)]
    types: Annotated[list[Type], Meta(min_length=1)] | None = None
    fault: Way | None = None
    after: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0

    def __post_init__(self):
        if self.types is not None and self.fault is not None:
            raise ValueError("expected either types or a fault")
        if self.after and self.fault is None:
            raise ValueError("after: expected none without a fault of streams")


class Envelope(Refused):
    """An error in an answer with status 200."""

    def body(self) -> bytes:
        """Return the body, which has the status of the error."""
        return super().body().replace(b'"code":200', b'"code":500')


class Breakage:
    """The way in which an answer breaks.

    name : one of `Way`. after : events of a stream before that.
    """

    def __init__(self, name: str, after: int):
        self.name, self._left, self.has_broken = name, after, False

    @property
    def omits_end(self) -> bool:
        """Whether the event [DONE] is missing."""
        return self.has_broken or self.name == "no_done"

    def pass_on(self, events: list[bytes]) -> bytes:
        """Return the bytes of the next events; `has_broken`: nothing follows them."""
        if self.name == "no_usage":
            return b"".join(event for event in events if b'"choices":[]' not in event)
        if self.name == "no_done":
            return b"".join(events)
        passed, cut = events[:self._left], events[self._left:self._left + 1]
        self._left -= len(passed)
        if not cut:
            return b"".join(passed)
        self.has_broken = True
        if self.name == "cut_mid_frame":
            passed.append(cut[0][:len(cut[0]) // 2])
        elif self.name == "error_400_in_sse":
            passed.append(b"data: %b\n\n" % Refused(400, "The request is not valid.").body())
        return b"".join(passed)

    def close(self, transport) -> bool:
        """Close the connection, if the answer breaks so; return whether it is closed."""
        if self.name == "reset":
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            transport.abort()
        elif self.name.startswith("cut_"):
            transport.close()
        return self.name == "reset" or self.name.startswith("cut_")


class Faults:
    """Draws the requests that are hit, by seed and number of the request alone."""

    def __init__(self, seed: int):
        self._seed, self._count, self.order = seed, 0, Order(0.0)

    def draw(self) -> Breakage | None:
        """Return the way in which the answer to the next request breaks.

        None: it does not. Raises Refused: an error comes in its place.
        """
        order, self._count = self.order, self._count + 1
        drawn = blake2b(f"{self._seed}/fault/{self._count}".encode(), digest_size=16).digest()
        hit, chosen = int.from_bytes(drawn[:8], "big"), int.from_bytes(drawn[8:], "big")
        if hit >= order.rate * 2**64:
            return None
        if order.fault is None:
            types = order.types or list(TYPES)
            raise Refused(*TYPES[types[chosen % len(types)]])
        if order.fault == "cancelled_499":
            raise Refused(*CANCELLED)
        if order.fault == "error_envelope_200":
            raise Envelope(200, "The engine has failed.", "InternalServerError")
        return Breakage(order.fault, order.after)
