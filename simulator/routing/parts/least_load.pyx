"""The least loaded replica of a view, kept up to date change by change."""
from libc.math cimport INFINITY

from simulator.domain.replica_state cimport ReplicaAccount
from simulator.routing.parts.load cimport REQUESTS, WAITING, load_named, load_of
from simulator.routing.parts.pick cimport pick_least
from simulator.core.tied_counts cimport OUT


cdef class LeastLoad:
    """The load called `name` of the replicas of `view`; see `parts/load`."""

    def __cinit__(self, View view, str name):
        self.view = view
        self.kind = load_named(name, view)
        if self.kind == REQUESTS:
            self._counts = TiedCounts(view.num_replicas)
        else:
            self._loads = TiedMinima(view.num_replicas)
            view.wants_in_flight = True

    cdef int refresh(self, int64_t now_ns) except -1 nogil:
        cdef const ReplicaAccount* account
        cdef int32_t i, replica
        if self.kind >= WAITING:
            self.view.look(now_ns)
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            account = &self.view.accounts[replica]
            if self._counts is not None:
                self._counts.set(replica, account.in_flight if account.is_routable else OUT)
            else:
                self._loads.set(replica, load_of(self.kind, self.view, replica) if account.is_routable else INFINITY)
        self.view.forget_changes()
        return 0

    cdef double load(self, int32_t replica) noexcept nogil:
        if self._counts is None:
            return self._loads.get(replica)
        return self._counts.get(replica) if self._counts.get(replica) != OUT else INFINITY

    cdef int32_t pick(self, Draws draws) noexcept nogil:
        cdef int32_t ties
        if self._counts is not None:
            ties = self._counts.ties()
            return self._counts.tied(draws.below(ties) if ties > 1 else 0) if ties > 0 else -1
        return pick_least(self._loads, draws)

    cdef int32_t first(self) noexcept nogil:
        cdef int32_t least, i
        if self._counts is None:
            return self._loads.tied(0) if self._loads.least() < INFINITY else -1
        if self._counts.ties() == 0:
            return -1
        least = self._counts.tied(0)
        for i in range(1, self._counts.ties()):
            least = min(least, self._counts.tied(i))
        return least
