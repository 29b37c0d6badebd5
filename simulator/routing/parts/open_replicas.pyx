"""The replicas that can be routed to, side by side, so that drawing one takes one draw."""
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken


cdef class OpenReplicas:
    """The replicas of `view` with `is_routable` in their account."""

    def __cinit__(self, View view):
        cdef int32_t i
        self.view = view
        self.at = <int32_t*>malloc(view.num_replicas * sizeof(int32_t))
        self._place = <int32_t*>malloc(view.num_replicas * sizeof(int32_t))
        if self.at == NULL or self._place == NULL:
            raise MemoryError()
        for i in range(view.num_replicas):
            self._place[i] = -1

    def __dealloc__(self):
        free(self.at)
        free(self._place)

    cdef void refresh(self) noexcept nogil:
        cdef int32_t i, replica
        cdef bint is_other = False
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            is_other |= (self.view.accounts[replica].is_routable != 0) != (self._place[replica] >= 0)
        if is_other:                # by number: the order of changes depends on earlier looks
            self.size = 0
            for replica in range(self.view.num_replicas):
                self._place[replica] = -1
                if self.view.accounts[replica].is_routable:
                    self._place[replica] = self.size
                    self.at[self.size] = replica
                    self.size += 1
        self.view.forget_changes()

    cpdef int check(self) except -1 nogil:
        cdef int32_t replica, num_open = 0
        for replica in range(self.view.num_replicas):
            if (self.view.accounts[replica].is_routable != 0) != (self._place[replica] >= 0):
                return broken("OpenReplicas: a replica is open there and closed here, or the reverse")
            if self._place[replica] >= 0:
                num_open += 1
                if self.at[self._place[replica]] != replica:
                    return broken("OpenReplicas: a replica is not in its place")
        if num_open != self.size:
            return broken("OpenReplicas: size is not the number of open replicas")
        return 0

    # The face for tests and exploration.

    def list_open(self):
        """Return the open replicas, in order of their number."""
        self.refresh()
        return [self.at[i] for i in range(self.size)]
