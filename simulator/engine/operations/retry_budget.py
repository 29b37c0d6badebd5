"""A bound on the share of retries among all requests that clients send."""
from collections import deque

import numpy as np

from simulator.domain import records


class RetryBudget:
    """The budget of all clients of a cluster.

    settings : domain.client_retry.ClientRetry with a budget_share.
    workload : its `requests` show which have arrived.
    """

    def __init__(self, settings, workload):
        self._share, self._requests = settings.budget_share, workload.requests
        self._window_ns = None if settings.budget_window_s is None else round(settings.budget_window_s * 1e9)
        self._arrives_in_order = workload.script is None
        self._retried_ns = deque()      # within the window

    def spend(self, now_ns: int) -> bool:
        """Return whether a retry is within the budget; if so it counts from now on."""
        begin_ns = -1 if self._window_ns is None else now_ns - self._window_ns
        while self._retried_ns and self._retried_ns[0] <= begin_ns:
            self._retried_ns.popleft()
        retries = len(self._retried_ns) + 1
        if retries > self._share * (retries + self._arrived(begin_ns, now_ns)):
            return False
        self._retried_ns.append(now_ns)
        return True

    def _arrived(self, begin_ns: int, now_ns: int) -> int:
        """Return how many requests arrived first after `begin_ns`, up to now."""
        arrivals_ns = self._requests["arrival_ns"]
        if self._arrives_in_order:
            before, until = np.searchsorted(arrivals_ns, (begin_ns, now_ns), side="right").tolist()
            return until - before
        return int((records.has_come(self._requests["status"]) & (arrivals_ns > begin_ns)).sum())
