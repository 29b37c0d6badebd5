"""Number of accepted drafts of a verify step."""
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
    cdef uint64_t* _bounds          # [profile, _num_bounds] drawn 53-bit numbers >= bound i accept more than i drafts
    cdef int32_t* _profiles         # [row] profile of each request, selects its bounds; NULL: one profile for all
    cdef uint64_t _key              # of the random stream
    cdef uint64_t* _numbers         # [row] number that identifies a request wherever it is served; NULL: its row
    cdef int32_t* steps             # [row] verify steps so far; of a multi-token member: as of when it joined

    # Return the random stream of a request: it depends on the request's number alone.
    cdef inline uint64_t stream(self, int32_t row) noexcept nogil:
        cdef uint64_t number = <uint64_t>row if self._numbers == NULL else self._numbers[row]
        return mix(self._key + number * <uint64_t>0x9E3779B97F4A7C15)

    # Return the bounds that decide the accepted drafts of a request; NULL: the cycle decides.
    cdef inline const uint64_t* bounds(self, int32_t row) noexcept nogil:
        if self._profiles == NULL:
            return self._bounds
        return &self._bounds[<int64_t>self._profiles[row] * self._num_bounds]

    # Return the drafts that the target model accepts in verify step `step`, counted from 0, of a request with `bounds`
    # and `stream`.
    cdef inline int32_t accepted(self, const uint64_t* bounds, uint64_t stream, int32_t step) noexcept nogil:
        cdef int32_t accepted = 0, i
        cdef uint64_t drawn
        if self.period > 0:
            return self._cycle[step % self.period]
        drawn = mix(stream + <uint64_t>step) >> 11
        if self._num_bounds <= FEW_BOUNDS:          # no branch that depends on the drawn number
            for i in range(self._num_bounds):
                accepted += drawn >= bounds[i]
            return accepted
        while accepted < self._num_bounds and drawn >= bounds[accepted]:
            accepted += 1
        return accepted

    # Return the accepted drafts of the next verify step of `row`, and count that step.
    cdef int32_t next(self, int32_t row) noexcept nogil

    # Count the verify steps `first` .. `end` - 1 of `row` by accepted drafts; none of the steps was cut short.
    cdef void count(self, int32_t row, int32_t first, int32_t end, int64_t* steps) noexcept nogil

    # Of a cycle: drafts accepted in all verify steps before this one.
    cdef inline int64_t accepted_before(self, int64_t step) noexcept nogil:
        return step // self.period * self._sums[self.period] + self._sums[step % self.period]
