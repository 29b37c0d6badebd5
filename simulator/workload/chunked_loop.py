"""Slots that send requests in chunks of rows: each sends one when its last one has ended."""
import msgspec
import numpy as np


class Loop(msgspec.Struct, frozen=True):
    """The slots, and their pauses; times in ns.

    opens_ns : int64 (slots,), when each slot opens.
    ends_ns : no request comes at this instant or later; None: no end.
    client_delay_ns : from an end to the client's reaction to it.
    rest_ns : int64 (n,), pause of the slot after the end of each request.
    rest_share : float64 (n,), share of the time from a request's arrival to its end that shortens the pause.
    """

    opens_ns: np.ndarray
    ends_ns: int | None
    client_delay_ns: int
    rest_ns: np.ndarray
    rest_share: np.ndarray
