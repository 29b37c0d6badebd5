"""A view of some replicas of another view."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.signals.view cimport View

WANTS = ("wants_counts", "wants_blocks", "wants_levels", "wants_times", "wants_caches", "wants_adapters")


@cython.final
cdef class PartView(View):
    """Copies of states and accounts, as of the last look or `copy_accounts`.

    num_replicas : number of `replicas`. shared : the other View. replicas : int32 (num_replicas,), as numbered there.
    """

    cdef View _shared
    cdef int32_t[::1] _replicas

    def __init__(self, num_replicas, View shared, replicas):
        self._shared, self._replicas = shared, replicas
        self.knows_adapters = shared.knows_adapters
        self.copy_accounts()

    def pass_on_wants(self):
        """Request from the other view the fields that are requested of this one."""
        for name in WANTS:
            setattr(self._shared, name, getattr(self._shared, name) or getattr(self, name))

    def copy_accounts(self):
        """Copy the accounts, which are exact at any time in the other view."""
        cdef int32_t i
        for i in range(self.num_replicas):
            self.accounts[i] = self._shared.accounts[self._replicas[i]]
            self.mark(i)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        self._shared.look(now_ns)
        self.looked_ns = self._shared.looked_ns
        for i in range(self.num_replicas):
            self.states[i] = self._shared.states[self._replicas[i]]
            self.mark(i)
        return 0

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        return self._shared.cached_blocks(self._replicas[replica], row, now_ns)

    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil:
        return self._shared.holds_adapter(self._replicas[replica], adapter, now_ns)
