"""Numbers of replicas and the highest one: blocks of numbers with their maxima."""
cimport cython
from libc.stdint cimport int8_t, int32_t

from simulator.core.draws cimport Draws


@cython.final
cdef class BestSums:
    cdef readonly int32_t size
    cdef double* values         # [size] of closed replicas: -infinity. Not NaN
    cdef int32_t _shift         # a block has 2**_shift numbers, about the square root of `size`
    cdef int32_t _num_blocks
    cdef double* _highest       # [block] its highest number, unless it is stale
    cdef int32_t* _ties         # [block] numbers that are as high
    cdef int8_t* _is_stale      # [block] numbers changed since
    cdef int32_t* _stale        # [_num_stale] those blocks
    cdef int32_t _num_stale

    # Give an index another number.
    cdef inline void set(self, int32_t index, double value) noexcept nogil:
        self.values[index] = value
        self._note(index >> self._shift)

    cdef inline void _note(self, int32_t block) noexcept nogil:
        if not self._is_stale[block]:
            self._is_stale[block] = True
            self._stale[self._num_stale] = block
            self._num_stale += 1

    # All numbers were written.
    cdef void note_all(self) noexcept nogil

    # The highest number; -infinity if all are.
    cdef double greatest(self) noexcept nogil

    # The first index with the highest number, or one that is drawn from several; -1: all numbers are -infinity.
    cdef int32_t first(self) noexcept nogil
    cdef int32_t pick(self, Draws draws) noexcept nogil

    cdef int32_t _tied(self, double best, int32_t k) noexcept nogil
