"""Slots that send requests in chunks of rows: each sends one when its last one has ended."""
import msgspec
import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.workload.base import Workload
from simulator.workload.stages import openings
from simulator.workload.think_times import pauses


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


def loop_of(rows, load: Load, ends_s: float | None, streams: RandomStreams) -> Loop:
    """Return the slots of a closed loop.

    Their pauses are columns that are drawn with the rows.

    rows : RequestChunks. ends_s : no request comes then or later. streams : go on where they were left.
    """
    shares = np.empty(0)

    def rest_ns(part: Workload) -> np.ndarray:
        nonlocal shares
        drawn_ns, shares = pauses(load, len(part), streams)
        shares = np.zeros(len(part)) if shares is None else shares
        return np.zeros(len(part), np.int64) if drawn_ns is None else drawn_ns

    return Loop(openings(load.ramp_up_s, load.concurrency), None if ends_s is None else round(ends_s * 1e9),
                round((load.client_delay_s or 0.0) * 1e9), rows.column(np.int64, rest_ns),
                rows.column(np.float64, lambda part: shares))
