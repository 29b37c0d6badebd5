"""Pauses of slots after the requests that held them."""
import numpy as np

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, by_code, nearest


def think_times_of(columns: Columns, load: Load, streams: RandomStreams) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return how long the slot of each request pauses, ns, int64 (n,).

    Second, the share of the time from the request's arrival to its end that is subtracted from the pause.
    None: no pause; no subtraction.
    """
    clients = columns.clients
    if clients is None:
        return pauses(load, len(columns), streams)
    rest_ns, share = np.zeros(len(columns), np.int64), np.zeros(len(columns))
    for rows in by_code(clients.codes):
        code = clients.codes[rows[0]]
        drawn_ns, drawn_share = pauses(load, len(rows), streams) if code < 0 else pauses(
            clients.loads[code], len(rows), streams, clients.think_streams[code])
        rest_ns[rows] = 0 if drawn_ns is None else drawn_ns
        share[rows] = 0 if drawn_share is None else drawn_share
    return rest_ns if rest_ns.any() else None, share if share.any() else None


def pauses(load: Load, count: int, streams: RandomStreams,
           stream: str = "think") -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return pauses of `count` requests and shares, as `think_times_of`."""
    if load.think_time_s == 0.0:
        return None, None
    mean_s = load.think_time_s
    if isinstance(mean_s, float):
        rest_s = np.full(count, mean_s)
    else:
        chosen = load.think_time_s
        distribution = registry.load("time_distribution", chosen.distribution)(chosen.parameters)
        rest_s, mean_s = distribution.draw(streams.generator(stream), count), getattr(distribution, "mean_s", None)
    rest_ns = nearest(rest_s * 1e9)
    if load.think_time_from == "end":
        return rest_ns, None
    if load.think_time_from == "arrival":
        return rest_ns, np.ones(count)
    if mean_s is None:
        raise InputErrors([KeyFault(f'workload.load.think_time_from: "arrival_mean" needs mean_s of the distribution, '
                                    f'which "{load.think_time_s.distribution}" does not have')])
    return rest_ns, rest_s / mean_s if mean_s > 0 else np.zeros(count)
