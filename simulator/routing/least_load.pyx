"""The least loaded replica of a view, kept up to date change by change."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from simulator.core.draws cimport Draws
from simulator.routing.load cimport WAITING, load_named, load_of
from simulator.routing.tied_minima cimport TiedMinima
from simulator.signals.view cimport View


cdef class LeastLoad:
    """The load called `name` of the replicas of `view`; see simulator.routing.load."""

    def __cinit__(self, View view, str name):
        self.view = view
        self.kind = load_named(name, view)
        self.loads = TiedMinima(view.num_replicas)

    cdef int refresh(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, replica
        if self.kind >= WAITING:
            self.view.look(now_ns)
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            self.loads.set(replica, load_of(self.kind, self.view, replica)
                           if self.view.accounts[replica].is_routable else INFINITY)
        self.view.forget_changes()
        return 0

    cdef int32_t pick(self, Draws draws) noexcept nogil:
        cdef int32_t ties = self.loads.ties()
        if self.loads.least() == INFINITY:
            return -1
        return self.loads.tied(draws.below(ties) if ties > 1 else 0)
