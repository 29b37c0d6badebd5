"""Numbers of replicas and the highest one.

A change makes one block stale, and only stale blocks are looked through again: a change costs about the square root of
the number of replicas, and so does the choice. All numbers can be written at once without sorting anything.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport calloc, free
cimport cython

from simulator.routing.parts.pick cimport highest

cdef enum:
    LEAST_SHIFT = 4


@cython.final
cdef class BestSums:
    """One number for each of `size` indices, at first 0."""

    def __cinit__(self, int32_t size):
        self.size, self._shift = size, LEAST_SHIFT
        while 1 << 2 * self._shift < size:
            self._shift += 1
        self._num_blocks = (size + (1 << self._shift) - 1) >> self._shift
        self.values = <double*>calloc(size, sizeof(double))
        self._highest = <double*>calloc(self._num_blocks, sizeof(double))
        self._ties = <int32_t*>calloc(self._num_blocks, sizeof(int32_t))
        self._is_stale = <int8_t*>calloc(self._num_blocks, sizeof(int8_t))
        self._stale = <int32_t*>calloc(self._num_blocks, sizeof(int32_t))
        if (self.values == NULL or self._highest == NULL or self._ties == NULL or self._is_stale == NULL
                or self._stale == NULL):
            raise MemoryError()
        self.note_all()

    def __dealloc__(self):
        free(self.values)
        free(self._highest)
        free(self._ties)
        free(self._is_stale)
        free(self._stale)

    cdef void note_all(self) noexcept nogil:
        cdef int32_t block
        for block in range(self._num_blocks):
            self._note(block)

    cdef double greatest(self) noexcept nogil:
        cdef int32_t block, begin, count, ties, i, k
        cdef double best
        cdef const double* numbers
        for i in range(self._num_stale):
            block = self._stale[i]
            begin = block << self._shift
            numbers, count = self.values + begin, min(1 << self._shift, self.size - begin)
            best, ties = highest(numbers, count), 0
            for k in range(count):
                ties += numbers[k] == best
            self._highest[block], self._ties[block], self._is_stale[block] = best, ties, False
        self._num_stale = 0
        return highest(self._highest, self._num_blocks)

    cdef int32_t first(self) noexcept nogil:
        cdef double best = self.greatest()
        return self._tied(best, 0) if best > -INFINITY else -1

    cdef int32_t pick(self, Draws draws) noexcept nogil:
        cdef double best = self.greatest()
        cdef int32_t ties = 0, block
        if best == -INFINITY:
            return -1
        for block in range(self._num_blocks):
            ties += self._ties[block] if self._highest[block] == best else 0
        return self._tied(best, draws.below(ties) if ties > 1 else 0)

    cdef int32_t _tied(self, double best, int32_t k) noexcept nogil:
        """Return the k-th index with the highest number, in order of index."""
        cdef int32_t block = 0, i
        while self._highest[block] != best or k >= self._ties[block]:
            k -= self._ties[block] if self._highest[block] == best else 0
            block += 1
        i = block << self._shift
        while self.values[i] != best or k > 0:
            k -= self.values[i] == best
            i += 1
        return i
