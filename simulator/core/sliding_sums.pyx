"""Sums over the last stretch of time, which moves on in slices."""
from libc.math cimport fabs
from libc.stdlib cimport calloc, free

from simulator.core.errors cimport broken

cdef enum:
    NUM_SLICES = 60             # a window of a minute moves on each second


cdef class SlidingSums:
    """Sums over `window_s` seconds, infinity: all, for each of `num_keys` keys."""

    def __cinit__(self, int32_t num_keys, double window_s):
        self.num_keys = num_keys
        self._slice_ns = max(1, round(window_s * 1e9 / NUM_SLICES)) if window_s < 1e9 else 0
        self.sums = <double*>calloc(num_keys + 1, sizeof(double))
        self._slices = <double*>calloc(<size_t>num_keys * NUM_SLICES + 1, sizeof(double))
        if self.sums == NULL or self._slices == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.sums)
        free(self._slices)

    cdef bint advance(self, int64_t now_ns) noexcept nogil:
        cdef int64_t last = now_ns // self._slice_ns if self._slice_ns else 0
        cdef bint has_changed = last > self._now
        cdef double* old
        cdef int32_t key
        self._now = max(self._now, last - NUM_SLICES)       # slices in between are over already
        while self._now < last:
            self._now += 1
            old = &self._slices[(self._now % NUM_SLICES) * self.num_keys]
            for key in range(self.num_keys):
                self.sums[key] = max(self.sums[key] - old[key], 0.0)
                old[key] = 0.0
        return has_changed

    cdef void add(self, int32_t key, double amount) noexcept nogil:
        self.sums[key] += amount
        self._slices[(self._now % NUM_SLICES) * self.num_keys + key] += amount

    cpdef int check(self) except -1 nogil:
        cdef int32_t key, i
        cdef double total
        for key in range(self.num_keys):
            total = 0.0
            for i in range(NUM_SLICES):
                total += self._slices[i * self.num_keys + key]
            if not fabs(self.sums[key] - total) <= 1e-6 * max(1.0, total):
                return broken("SlidingSums: a sum is not that of its slices")
        return 0

    # The face for tests and exploration.

    def add_at(self, key, amount, now_ns):
        """Add to a key."""
        self.advance(now_ns)
        self.add(key, amount)

    def sum_at(self, key, now_ns):
        """Return the sum of a key."""
        self.advance(now_ns)
        return self.sums[key]
