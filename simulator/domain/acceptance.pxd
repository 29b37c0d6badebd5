"""How many drafts of a verify step are accepted."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.draws cimport mix


cdef enum:
    FEW_BOUNDS = 8


@cython.final
cdef class Acceptance:
    cdef readonly int32_t period    # verify steps after which a cycle begins anew; 0: drawn
    cdef int32_t* _cycle            # [period] accepted drafts of verify step i: _cycle[i % period]
    cdef int64_t* _sums             # [period + 1] accepted drafts of the steps before
    cdef int32_t _num_bounds        # most drafts that a drawn step accepts
    cdef uint64_t* _bounds          # [profile, _num_bounds] drawn numbers of 53 bits from which on more than i are
                                    # accepted
    cdef int32_t* _profiles         # [row] whose bounds a request has; NULL: all have the same
    cdef uint64_t _key              # of the random stream
    cdef uint64_t* _numbers         # [row] what tells a request from others, wherever it stands; NULL: its row
    cdef int32_t* steps             # [row] verify steps so far; of a member that strides: when it joined

    # What tells the draws of a request from those of others.
    cdef inline uint64_t stream(self, int32_t row) noexcept nogil:
        cdef uint64_t number = <uint64_t>row if self._numbers == NULL else self._numbers[row]
        return mix(self._key + number * <uint64_t>0x9E3779B97F4A7C15)

    # By which it is decided what is accepted of a request; NULL: by the cycle.
    cdef inline const uint64_t* bounds(self, int32_t row) noexcept nogil:
        if self._profiles == NULL:
            return self._bounds
        return &self._bounds[<int64_t>self._profiles[row] * self._num_bounds]

    # Drafts that the target model accepts in a verify step, counted from 0, of the request of these bounds and this
    # stream.
    cdef inline int32_t accepted(self, const uint64_t* bounds, uint64_t stream, int32_t step) noexcept nogil:
        cdef int32_t accepted = 0, i
        cdef uint64_t drawn
        if self.period > 0:
            return self._cycle[step % self.period]
        drawn = mix(stream + <uint64_t>step) >> 11
        if self._num_bounds <= FEW_BOUNDS:          # no branch that depends on what is drawn
            for i in range(self._num_bounds):
                accepted += drawn >= bounds[i]
            return accepted
        while accepted < self._num_bounds and drawn >= bounds[accepted]:
            accepted += 1
        return accepted

    # The same for the next verify step of `row`, which is then counted.
    cdef int32_t next(self, int32_t row) noexcept nogil

    # Add one for each of the verify steps `first` .. `end` - 1 of `row`, by accepted drafts, none of them cut short.
    cdef void count(self, int32_t row, int32_t first, int32_t end, int64_t* steps) noexcept nogil

    # Of a cycle: drafts accepted in all verify steps before this one.
    cdef inline int64_t accepted_before(self, int64_t step) noexcept nogil:
        return step // self.period * self._sums[self.period] + self._sums[step % self.period]
