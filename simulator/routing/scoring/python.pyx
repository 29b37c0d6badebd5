"""Base class for scorers written in Python: slow, but the shortest way to try an idea."""
from libc.stdint cimport int32_t, int64_t

import numpy as np

from simulator.signals.request_view cimport RequestView
from simulator.routing.scoring.base cimport Scorer


cdef class PythonScorer(Scorer):
    """Base of scorers written in Python: override `rate_all`.

    The experiment names the subclass: `scorers = [{name = "my_lab.routing:ShortContext", weight = 1.0}]`.

    Hang a frozen `msgspec.Struct` on the class as `Parameters` to have further keys of its table read, checked and
    passed on.

        class ShortContext(PythonScorer):
            def rate_all(self, request, now_ns):
                return 1.0 / (1.0 + self.states["running_tokens"] / 1e6)

    `rate_all` is called once each time a request is to be sent somewhere, whether or not decisions are written down.
    It costs a Python call and its own work, some microseconds. `states` and `accounts` are those of `PythonRouter`.
    Scores are clamped to 0 .. 1; those of replicas that cannot be routed to do not count. An exception ends the
    simulation.
    """

    Parameters = None

    cdef readonly object parameters     # content of the scorer's table beside name and weight, as `Parameters`
    cdef readonly object states         # structured array (replicas,), reports of replicas
    cdef readonly object accounts       # structured array (replicas,), the gateway's own account
    cdef RequestView _request           # one, reused for each call

    def __init__(self, parameters, context):
        self.parameters = parameters
        self.states, self.accounts = self.view.state_array.view(), self.view.account_array.view()
        self.states.flags.writeable = self.accounts.flags.writeable = False
        self._request = RequestView(context.workload)
        self.is_per_request = True
        self.view.wants_counts = self.view.wants_levels = self.view.wants_times = True

    def rate_all(self, request, now_ns):
        """Return the score of each replica for `request`, a `RequestView`: an array (replicas,), or one number."""
        raise NotImplementedError(f"{type(self).__name__} must override rate_all")

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        with gil:
            return self._ask(row, now_ns)

    cdef int _ask(self, int32_t row, int64_t now_ns) except -1:
        cdef const double[::1] found
        cdef int32_t i
        self._request.row = row
        answer = np.asarray(self.rate_all(self._request, now_ns), np.float64)
        if answer.shape not in ((), (self.num_replicas,)) or np.isnan(answer).any():
            raise ValueError(f"{type(self).__name__}.rate_all: expected {self.num_replicas} numbers, one a replica, "
                             f"found {answer}")
        found = np.ascontiguousarray(np.broadcast_to(answer, self.num_replicas))
        for i in range(self.num_replicas):
            self.values[i] = found[i]
        return 1
