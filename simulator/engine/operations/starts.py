"""Durations of the stages of a replica's start."""
import numpy as np


class Starts:
    """Durations of starts, by the nodes that had replicas before.

    settings : of the table.
    generator : of the drawn delays.
    had : (pool, node) of the replicas at time 0.
    weight_bytes : [pool] that a replica reads from storage; None: none.
    """

    def __init__(self, settings, generator: np.random.Generator, had: set[tuple[int, int]]):
        self._settings, self._generator, self._had = settings, generator, had
        self.weight_bytes: tuple[float, ...] | None = None

    def durations_ns(self, pool: int, node: int) -> tuple[int, int, int]:
        """Return how long provisioning, loading and warming take at a node."""
        settings, draws = self._settings, self._generator
        provisioning_ns, loading_ns, warming_ns = (each.draw_ns(draws) for each in (
            settings.provisioning_delay, settings.loading_delay, settings.warm_up_delay))
        if not any(other == node for _, other in self._had):
            provisioning_ns += settings.image_pull_delay.draw_ns(draws)
        if self.weight_bytes is not None:
            loading_ns += round(self.weight_bytes[pool] / self._bytes_per_ns((pool, node) in self._had))
        self._had.add((pool, node))
        if settings.ready_probe_s > 0:
            warming_ns += -(loading_ns + warming_ns) % round(settings.ready_probe_s * 1e9)
        return provisioning_ns, loading_ns, warming_ns

    def _bytes_per_ns(self, is_warm):
        weights = self._settings.weights
        return (weights.warm_gb_per_s or weights.gb_per_s) if is_warm else weights.gb_per_s
