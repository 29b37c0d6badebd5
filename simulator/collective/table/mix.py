"""Find measured curves for a group that may not have been measured: its own, or those of its neighbours.

A group of n ranks, g a node, takes

    its own curve                                                       where n and g were measured
    curves of the next smaller and larger n, mixed by log2 of n         between them
    the outermost curve x k(n) / k(outermost)                           beyond, k the bus factor of nccl-tests

Curves within one node serve groups within one node only, those over nodes groups over nodes: of several g the nearest.
"""
from math import log2
from typing import NamedTuple

from simulator.collective.groups import Group
from simulator.collective.table.curves import Curve, Place


class Mix(NamedTuple):
    """ns = scale x ((1 - weight) lower + weight upper)."""

    lower: Curve
    upper: Curve
    weight: float
    scale: float
    is_measured: bool       # the group itself was
    is_between: bool        # else, groups on both sides of it


def find_mix(curves: dict[Place, Curve], kind: str, group: Group, node_size: int) -> Mix | None:
    """Return the mix for a collective over a group; None: no curve serves it."""
    if kind == "send_recv":     # two neighbours of the group
        group = Group(2, group.stride)
    n, per_node = group.size, group.per_node(node_size)
    measured = _by_ranks(curves, kind, per_node, per_node == n)
    if not measured:
        return None
    own = curves.get(Place(kind, n, per_node))
    if own is not None:
        return Mix(own, own, 0.0, 1.0, True, False)
    lower = max((m for m in measured if m <= n), default=min(measured))
    upper = min((m for m in measured if m >= n), default=max(measured))
    if lower <= n <= upper:
        weight = 0.0 if lower == upper else log2(n / lower) / log2(upper / lower)
        return Mix(measured[lower], measured[upper], weight, 1.0, False, lower < n < upper)
    nearest = upper if n > upper else lower
    return Mix(measured[nearest], measured[nearest], 0.0, _factor(kind, n) / _factor(kind, nearest), False, False)


def _by_ranks(curves: dict[Place, Curve], kind: str, per_node: int, is_one_node: bool) -> dict[int, Curve]:
    """Return, for each measured number of ranks, the curve with the nearest number of ranks per node."""
    found = {}
    for place in sorted(curves, key=lambda place: abs(place.ranks_per_node - per_node)):
        if place.kind == kind and (place.num_ranks == place.ranks_per_node) == is_one_node:
            found.setdefault(place.num_ranks, curves[place])
    return found


def _factor(kind: str, n: int) -> float:
    return 1.0 if kind == "send_recv" else (n - 1) / n
