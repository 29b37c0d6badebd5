"""Requests that have left their replicas, until the cluster hears of it."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
cimport cython


@cython.final
cdef class Departures:
    """A list of rows in the order in which they left, at most one entry a row; nothing is listed until `keep`.

    num_requests : rows of the workload.
    """

    def __init__(self, num_requests):
        self.first = -1
        self._num_requests = num_requests

    def keep(self):
        """List from now on who leaves."""
        self._next = <int32_t*>malloc((self._num_requests + 1) * sizeof(int32_t))
        if self._next == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._next)
