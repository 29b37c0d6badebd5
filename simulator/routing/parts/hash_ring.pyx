"""Consistent hashing: when a replica starts or stops, only the keys on its own arcs move.

Source: Karger et al., Consistent Hashing and Random Trees, STOC 1997; points per replica as in ketama.
"""
from libc.stdint cimport INT32_MAX, int64_t
from libc.stdlib cimport free, malloc, qsort

from simulator.core.draws cimport mix


cdef int compare(const void* a, const void* b) noexcept nogil:
    """Order two points by hash, then by replica."""
    cdef const RingPoint* one = <const RingPoint*>a
    cdef const RingPoint* other = <const RingPoint*>b
    if one.hash != other.hash:
        return 1 if one.hash > other.hash else -1
    return (one.replica > other.replica) - (one.replica < other.replica)


cdef class HashRing:
    """A ring with `points_per_replica` points for each of `num_replicas` replicas."""

    def __cinit__(self, int32_t num_replicas, int32_t points_per_replica):
        cdef int32_t replica, number
        cdef RingPoint* point
        if <int64_t>num_replicas * points_per_replica > INT32_MAX:
            raise ValueError(f"{points_per_replica} points for each of {num_replicas} replicas are more than 2**31 - 1")
        self.size = num_replicas * points_per_replica
        self._points = <RingPoint*>malloc(<size_t>self.size * sizeof(RingPoint))
        if self._points == NULL:
            raise MemoryError()
        for replica in range(num_replicas):
            for number in range(points_per_replica):
                point = &self._points[<int64_t>replica * points_per_replica + number]
                point.hash, point.replica = mix(mix(replica + 1) + <uint64_t>number), replica
        qsort(self._points, self.size, sizeof(RingPoint), compare)

    def __dealloc__(self):
        free(self._points)

    cdef int32_t owner(self, uint64_t hash, View view, int32_t limit) noexcept nogil:
        cdef int32_t low = 0, high = self.size, middle, replica
        while low < high:
            middle = (low + high) // 2
            if self._points[middle].hash < hash:
                low = middle + 1
            else:
                high = middle
        for _ in range(self.size):
            if low == self.size:
                low = 0
            replica = self._points[low].replica
            if view.accounts[replica].is_routable and view.accounts[replica].in_flight < limit:
                return replica
            low += 1
        return -1
