"""Members of the bulk-decode cohort, for caches that give their blocks one by one: by phase, in scheduling order."""
from libc.stdint cimport int32_t, int64_t
cimport cython


cdef struct Member:             # of a slot
    int64_t order               # its place in the bucket of its phase
    int32_t before, after       # neighbours in that bucket, slots; -1: none


@cython.final
cdef class Members:
    cdef Member* members        # [slot]
    cdef int32_t* first         # [phase] slot of the first member; -1: none
    cdef int32_t* last          # [phase] slot of the last member; -1: none
    cdef int32_t* _ends         # [cohort][2][phase] backs `first` and `last`
    cdef int32_t size           # members in all buckets of all cohorts
    cdef int32_t _num_phases
    cdef int32_t _num_slots

    # Have `count` cohorts, all empty, and select the first; select another one.
    cdef int reserve_groups(self, int32_t count) except -1
    cdef void turn_to(self, int32_t group) noexcept nogil

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve(self, int32_t num_slots) except -1 nogil

    cdef void join(self, int32_t slot, int32_t phase, int64_t order) noexcept nogil
    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil
