"""Times of tokens that come from another region: as their clients see them."""
import numpy as np


class LateTokens:
    """Adds the way back to times of tokens.

    Tokens that come after their client has given up are left out.

    forwarding : RegionForwarding, which has the ways.
    deadlines_ns : int64 (requests,), of the attempts under way; -1: none.
    sink : has `tokens(rows)`.
    """

    def __init__(self, forwarding, deadlines_ns, sink):
        self._forwarding, self._deadlines_ns, self._sink = forwarding, deadlines_ns, sink

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        requests = rows["request"]
        back_ns, deadlines_ns = self._forwarding.back_ns(requests), self._deadlines_ns[requests]
        rows["time_ns"] += back_ns
        self._sink.tokens(rows[(back_ns == 0) | (deadlines_ns < 0) | (rows["time_ns"] <= deadlines_ns)])
