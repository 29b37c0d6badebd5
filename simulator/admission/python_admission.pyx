"""Base class for admission policies written in Python: slow, but the shortest way to try an idea."""
from libc.stdint cimport int32_t, int64_t

from simulator.admission.base cimport Admission
from simulator.signals.request_view cimport RequestView


cdef class PythonAdmission(Admission):
    """Base of admission policies written in Python: override `lets_pass`.

    The experiment names the subclass: `policy = "my_lab.admission:ShortPrompts"`.

    Hang a frozen `msgspec.Struct` on the class as `Parameters` to have keys of [cluster.admission] read, checked and
    passed on.

        class ShortPrompts(PythonAdmission):
            def lets_pass(self, request, now_ns):
                return request.prompt_tokens < 8000 or self.accounts["in_flight"].sum() < 100

    Each request costs a Python call and its own work. `states` and `accounts` are read-only NumPy arrays, one row a
    replica, fields as in simulator/domain/replica_state.pxd. An exception ends the simulation.
    """

    Parameters = None

    cdef readonly object parameters     # content of [cluster.admission], as `Parameters`
    cdef readonly object states         # structured array (replicas,), reports of replicas
    cdef readonly object accounts       # structured array (replicas,), the gateway's own account
    cdef RequestView _request           # one, reused for each call

    def __init__(self, parameters, context):
        self.parameters = parameters
        self.states, self.accounts = self.view.state_array.view(), self.view.account_array.view()
        self.states.flags.writeable = self.accounts.flags.writeable = False
        self._request = RequestView(context.workload)
        self.reads_state = True
        self.view.wants_counts = self.view.wants_levels = self.view.wants_times = True

    def lets_pass(self, request, now_ns):
        """Return whether `request`, a `RequestView`, is let in: True or False, nothing else."""
        raise NotImplementedError(f"{type(self).__name__} must override lets_pass")

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        self.view.look(now_ns)
        with gil:
            self._request.row = row
            decision = self.lets_pass(self._request, now_ns)
            if decision is not True and decision is not False and type(decision).__name__ not in ("bool", "bool_"):
                raise TypeError(f"{type(self).__name__}.lets_pass: expected True or False, found {decision!r}")
            return bool(decision)
