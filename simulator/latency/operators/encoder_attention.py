"""Bidirectional attention of encoders: the table `encoder_attention`.

A row is one layer of one batch of sequences of equal length, keys and values with as many heads as queries. Layers with
windows attend as so many sequences of a window's length.
"""
from collections.abc import Callable

import numpy as np

from simulator.latency.operators.curves import Curve

TABLE = "encoder_attention"


def encoder_ns(database, heads: float, head_dim: int, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """Return the times of a layer over `counts` sequences of `lengths` each.

    None: not measured. Between measured numbers of sequences times are linear; beyond them they grow in proportion.
    """
    curves = encoder_curves(database)
    found = {size: database.ask(TABLE, sites, (heads, head_dim), lengths, light(database, size), is_root=True)
             for size, sites in curves.items()}
    sizes = np.array(sorted(size for size, times in found.items() if times is not None), dtype=float)
    if not len(sizes):
        return None
    ns = np.array([found[int(size)].ns for size in sizes])
    at = np.clip(counts, sizes[0], sizes[-1])
    high = np.clip(np.searchsorted(sizes, at), 1, len(sizes) - 1) if len(sizes) > 1 else np.zeros(len(at), int)
    low, items = np.maximum(high - 1, 0), np.arange(len(at))
    width = sizes[high] - sizes[low]
    share = np.divide(at - sizes[low], width, out=np.zeros(len(at)), where=width > 0)
    return (ns[low, items] + share * (ns[high, items] - ns[low, items])) * (counts / at)


def encoder_curves(database) -> dict[int, dict[tuple, Curve]]:
    """Return curves over the tokens of a sequence, by batch and (heads, head_dim)."""
    return database.curves((TABLE,), lambda: _read(database))


def light(database, batch: int) -> Callable:
    """Return the speed of light: 4 FLOPs an element of each pair, 8 bytes moved."""
    flops_per_ns = database.flops_per_ns("bfloat16")

    def light_ns(site, length):
        heads, head_dim = site
        return batch * heads * head_dim * np.maximum(4 * length * length / flops_per_ns,
                                                     8 * length / database.bytes_per_ns)
    return light_ns


def _read(database) -> dict[int, dict[tuple, Curve]]:
    columns = database.columns(TABLE)
    if columns is None:
        return {}
    rows = database.pick(TABLE, columns, np.full(len(columns["latency_ms"]), True))
    found = {}
    for (batch, *site), curve in database.split(rows, ("batch_size", "num_heads", "head_dim"), "isl").items():
        found.setdefault(int(batch), {})[tuple(site)] = curve
    return found
