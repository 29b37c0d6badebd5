"""Times between the turns of programs, in which tools run, as a client would declare or a predictor guess them."""
from typing import NamedTuple

import numpy as np

from simulator.workload.base import Workload
from simulator.workload.own_draws import normals

LAST = -1                       # no turn follows
LONGEST_NS = 10**16             # 116 days; longer ones are cut


class ToolTimes(NamedTuple):
    """Time to the next turn of each request's session.

    tool_ns : int64 (n,), LAST: no turn follows; 0: the workload has no time.
    from_arrival : int64 (n,), 1: the time counts from the arrival of the turn; 0: from its end.
    """

    tool_ns: np.ndarray
    from_arrival: np.ndarray


def tool_times(workload: Workload) -> ToolTimes:
    """Return the true times, between recorded arrivals or by the script.

    The next turn is the next row of the session. Requests without a session have none.
    """
    num_requests, sessions = len(workload), workload.demands["session"]
    order = np.lexsort((np.arange(num_requests), sessions))
    is_followed = (sessions[order[:-1]] == sessions[order[1:]]) & (sessions[order[:-1]] >= 0)
    rows, nexts = order[:-1][is_followed], order[1:][is_followed]
    tool_ns, from_arrival = np.full(num_requests, LAST, np.int64), np.zeros(num_requests, np.int64)
    tool_ns[rows] = 0
    if workload.script is None:
        arrivals_ns = workload.requests["arrival_ns"]
        tool_ns[rows] = arrivals_ns[nexts] - arrivals_ns[rows]
        from_arrival[rows] = 1
    elif (edges := workload.script.edges) is not None:
        chosen = np.flatnonzero((sessions[edges.sources] == sessions[edges.targets]) & (tool_ns[edges.sources] != LAST))
        for edge in chosen[np.argsort(-edges.delays_ns[chosen], kind="stable")]:        # the shortest last
            source, offsets_ns = edges.sources[edge], workload.script.offset_ns
            later_ns = 0 if offsets_ns is None else offsets_ns[edges.targets[edge]] - offsets_ns[source]
            is_given = later_ns > edges.delays_ns[edge]         # its arrival is recorded, and no earlier than that
            tool_ns[source] = later_ns if is_given else edges.delays_ns[edge]
            from_arrival[source] = is_given or edges.from_dispatch[edge]
    return ToolTimes(np.minimum(tool_ns, LONGEST_NS), from_arrival)


def expected(times: ToolTimes, workload: Workload, sigma: float, seed: int) -> np.ndarray:
    """Return the expected times, int64 (n,).

    The true times are multiplied by exp(sigma z - sigma^2 / 2). Standard normal numbers z are drawn for each request
    from the stream "tool times".
    """
    if sigma == 0:
        return times.tool_ns
    factors = np.exp(sigma * normals(seed, "tool times", workload.numbers()) - sigma ** 2 / 2)
    guessed = np.minimum(np.rint(times.tool_ns * factors), LONGEST_NS).astype(np.int64)
    return np.where(times.tool_ns == LAST, LAST, guessed)
