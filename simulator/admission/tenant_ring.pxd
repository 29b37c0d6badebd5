"""A set of small integers that finds its next member: the next tenant."""
cimport cython
from libc.stdint cimport int32_t, uint64_t


cdef enum:
    MAX_LEVELS = 6              # 64**6 > 2**31


@cython.final
cdef class TenantRing:
    cdef readonly int32_t universe      # members are 0 .. universe - 1
    cdef uint64_t* _words               # a bit for each member; above, a bit for each word that is not 0, and so on
    cdef int32_t _level[MAX_LEVELS]     # first word of each level, the members' first
    cdef int32_t _num_levels

    cdef void add(self, int32_t member) noexcept nogil
    cdef void discard(self, int32_t member) noexcept nogil

    # The lowest member >= `least`; -1: none. O(log64 universe).
    cdef int32_t first_from(self, int32_t least) noexcept nogil

    # The next member after `last` in begin .. end - 1, from `begin` again behind the highest; -1: none. `last` need not
    # be a member; begin - 1 returns the lowest.
    cdef int32_t next_in(self, int32_t begin, int32_t end, int32_t last) noexcept nogil

    # Raise RuntimeError if a bit does not match the level below, or is beyond the universe.
    cpdef int check(self) except -1 nogil
