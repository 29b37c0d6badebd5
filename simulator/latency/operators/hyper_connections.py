"""Hyper-connections: the table `mhc_module`.

A row is the kernel of both sites of a layer before (`pre`: the product with all streams, their mixing, one stream out)
or after (`post`) its parts, at four streams that are mixed with one another.
"""
import numpy as np

from simulator.latency.operators.curves import Curve, Times
from simulator.latency.operators.rows import default

TABLE, KERNELS = "mhc_module", ("pre", "post")
STREAMS, SITES = 4.0, 2.0       # in the table
# Elements of the hidden size that a site moves: `pre` reads all streams twice and writes one vector; `post` reads and
# writes all streams, and reads one vector.
MOVED = 2 * STREAMS + 1


def stream_times(database, part, hidden: int, tokens: np.ndarray) -> Times | None:
    """Return the times of a layer; None: not measured.

    part : HyperConnections.
    """
    if part.price_key != "hyper_connections" or part.streams != STREAMS or not part.mixes:
        return None
    found = [database.ask(TABLE, stream_curves(database, name), (hidden,), tokens, light(database))
             for name in KERNELS]
    if None in found:
        return None
    share = part.sites / SITES
    return Times(sum(times.ns for times in found) * share, np.max([times.origins for times in found], axis=0))


def stream_curves(database, name: str) -> dict[tuple, Curve]:
    """Return the curves over tokens of a kernel, by (hidden size,)."""
    return database.curves((TABLE, name), lambda: _read(database, name))


def light(database):
    """Return the speed of light: 16-bit elements that a kernel moves at both sites."""
    return lambda site, tokens: np.maximum(tokens, 1.0) * site[0] * (SITES * MOVED * 2 / database.bytes_per_ns)


def _read(database, name: str) -> dict[tuple, Curve]:
    columns = database.columns(TABLE)
    if columns is None:
        return {}
    kept = (columns["op_name"] == name) & (default(columns, "hc_mult", STREAMS) == STREAMS)
    kept &= default(columns, "num_sites", SITES) == SITES
    return database.split(database.pick(TABLE, columns, kept), ("hidden_size",), "num_tokens")
