"""Requests that have left their replicas, until the cluster is notified."""
from libc.stdlib cimport free, malloc
cimport cython


@cython.final
cdef class Departures:
    """Rows in the order in which they left; nothing is listed until `keep`.

    num_requests : rows of the workload.
    """

    def __init__(self, int64_t num_requests):
        self._room = 3 * num_requests
        self.turn_ns = -1

    def keep(self):
        """From now on list requests that leave."""
        self._rows = <int32_t*>malloc((self._room + 1) * sizeof(int32_t))       # pages are allocated on use
        if self._rows == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._rows)
        free(self.turns.rows)
