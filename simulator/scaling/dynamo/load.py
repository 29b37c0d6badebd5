"""Load loop of Dynamo's planner for one kind of replicas: one more, one less, or none, by their loads.

Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner/core/load_scaling.py, its rules restated.
"""
from collections.abc import Sequence
from typing import NamedTuple

# Thresholds of targets without latencies: replicas are added at, or above, the first, and removed at, or below, the
# second. Of prefill replicas: queued tokens / tokens of the longest context; of others: KV tokens / capacity.
PREFILL_THRESHOLDS = {"throughput": (1.0, 0.1), "latency": (0.1, 0.0)}
KV_THRESHOLDS = {"throughput": (1.0, 0.6), "latency": (0.4, 0.1)}


class Thresholds(NamedTuple):
    """Thresholds of a measure of load.

    up, down : one replica more if any load reaches `up`; one less if none exceeds `down`.
    is_above, is_below : a load must exceed `up`, or lie below `down`; False: to reach it suffices.
    """

    up: float
    down: float
    is_above: bool = False
    is_below: bool = False

    def any_is_high(self, loads: Sequence[float]) -> bool:
        """Return whether a load reaches the upper threshold."""
        return any(load > self.up or (load == self.up and not self.is_above) for load in loads)

    def all_are_low(self, loads: Sequence[float]) -> bool:
        """Return whether all loads are down to the lower threshold."""
        return all(load < self.down or (load == self.down and not self.is_below) for load in loads)

    def verdict(self, loads: Sequence[float], floor: int, *, may_stay: bool) -> int | None:
        """Return how many replicas there are to be; None: as many as there are.

        One less only if the highest load, spread over the others, does not reach the upper threshold.

        floor : replicas, at least.
        may_stay : return the present number, too, where loads are low; it cancels replicas that start.
        """
        now = len(loads)
        if self.any_is_high(loads):
            return now + 1
        if not self.all_are_low(loads):
            return None
        desired = max(now - 1, floor)
        if now > 1 and not self.any_is_high([max(loads) * now / desired]):
            return desired
        return now if may_stay else None


def thresholds_of_prefill(target: str, given: tuple[float, float] | None = None) -> Thresholds:
    """Return the thresholds of prefill replicas; `given`: tokens, for "load"."""
    if target == "load":
        return Thresholds(*given)
    return Thresholds(*PREFILL_THRESHOLDS[target], is_below=target == "throughput")


def thresholds_of_kv(target: str, given: tuple[float, float] | None = None) -> Thresholds:
    """Return the thresholds of other replicas; `given`: shares of a KV cache."""
    if target == "load":
        return Thresholds(*given)
    return Thresholds(*KV_THRESHOLDS[target], is_above=True, is_below=True)
