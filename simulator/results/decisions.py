"""Totals of routing decisions, added up as they are made."""
import numpy as np


class DecisionTotals:
    """Add up rows of /decisions."""

    def __init__(self):
        self._total = 0
        self._regret = self._most_regret = 0.0
        self._targets = np.zeros(0, np.int64)       # [replica] number of decisions

    def append(self, rows: np.ndarray) -> None:
        """Take rows of `records.DECISION`."""
        chosen = rows["replica"][rows["replica"] >= 0]
        targets = np.bincount(chosen, minlength=len(self._targets))
        targets[:len(self._targets)] += self._targets
        self._targets = targets
        self._total += len(rows)
        self._regret += float(rows["regret"].sum())
        self._most_regret = max(self._most_regret, float(rows["regret"].max(initial=0.0)))

    def summary(self, num_replicas: int) -> dict:
        """Return the part of summary.json about them.

        `targets` counts the decisions for each replica; regret is over requests that got a replica.
        """
        routed = int(self._targets.sum())
        targets = np.zeros(num_replicas, np.int64)
        targets[:len(self._targets)] = self._targets
        return {
            "total": self._total,
            "routed": routed,
            "refused": self._total - routed,
            "unique_targets": int((targets > 0).sum()),
            "targets": targets.tolist(),
            "mean_regret": self._regret / routed if routed else None,
            "max_regret": self._most_regret if routed else None,
        }
