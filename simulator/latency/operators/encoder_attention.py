"""Bidirectional attention of encoders and vision towers: the table `encoder_attention`.

A row is one layer of one batch of sequences of equal length, keys and values with as many heads as queries. Layers with
windows attend as so many sequences of a window's length.
"""
from collections.abc import Callable

import numpy as np

from simulator.latency.operators.curves import INTERPOLATED, Curve, Times

TABLE = "encoder_attention"


def encoder_times(database, batch: int, heads: int, head_dim: int, lengths: np.ndarray) -> Times | None:
    """Return the times of a layer of `batch` equal sequences; None: not measured.

    Between measured numbers of sequences times are linear; beyond them they grow in proportion.
    """
    curves = encoder_curves(database)
    found = {size: database.ask(TABLE, sites, (heads, head_dim), lengths, light(database, size), is_root=True)
             for size, sites in curves.items() if size in _around(sorted(curves), batch)}
    known = {size: times for size, times in found.items() if times is not None}
    if not known:
        return None
    if batch in known:
        return known[batch]
    sizes = sorted(known)
    ns = np.array([np.interp(batch, sizes, column) for column in zip(*(known[size].ns for size in sizes))])
    origins = np.max([known[size].origins for size in sizes], axis=0)
    return Times(ns * max(batch / sizes[-1], 1.0), np.maximum(origins, INTERPOLATED).astype(np.uint8))


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


def _around(sizes: list[int], batch: int) -> list[int]:
    """Return the measured size, or those on both sides of it."""
    place = int(np.searchsorted(sizes, batch))
    if place < len(sizes) and sizes[place] == batch:
        return [batch]
    return sizes[max(place - 1, 0):place + 1]


def _read(database) -> dict[int, dict[tuple, Curve]]:
    columns = database.columns(TABLE)
    if columns is None:
        return {}
    rows = database.pick(TABLE, columns, np.full(len(columns["latency_ms"]), True))
    found = {}
    for (batch, *site), curve in database.split(rows, ("batch_size", "num_heads", "head_dim"), "isl").items():
        found.setdefault(int(batch), {})[tuple(site)] = curve
    return found
