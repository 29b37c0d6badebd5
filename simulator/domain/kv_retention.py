"""Facts by which a KV cache holds blocks for programs."""
from typing import Literal

import msgspec
import numpy as np


class Retention(msgspec.Struct, frozen=True):
    """Rules of held blocks, and facts of all requests.

    policy, max_share : as in [engine.kv_retention]. ttl_ns : for "ttl"; else 0.
    requests, demands : of the workload, `records.REQUEST` and `records.DEMAND`.
    tool_ns : int64 (n,), expected time to the next turn of a program; -1: no turn follows.
    from_arrival : int64 (n,), 1: that time counts from the turn's arrival; 0: from its end.
    """

    policy: Literal["ttl", "pin", "predicted"]
    ttl_ns: int
    max_share: float
    requests: np.ndarray
    demands: np.ndarray
    tool_ns: np.ndarray
    from_arrival: np.ndarray
