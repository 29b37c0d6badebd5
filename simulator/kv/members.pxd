"""Members of the group whose blocks are given one by one: by phase, in the order of their scheduler."""
from libc.stdint cimport int32_t, int64_t
cimport cython


cdef struct Member:             # of a slot
    int64_t order               # its place in the bucket of its phase
    int32_t before, after       # neighbours in that bucket, slots; -1: none


@cython.final
cdef class Members:
    cdef Member* members        # [slot]
    cdef int32_t* first         # [phase] slot of the first; -1: none
    cdef int32_t* last          # [phase] likewise
    cdef int32_t* _ends         # [group][2][phase] where both point into
    cdef int32_t size           # members in all buckets of all groups
    cdef int32_t _num_phases
    cdef int32_t _num_slots

    # Have `count` groups, all empty, the first at hand; have another one at hand.
    cdef int reserve_groups(self, int32_t count) except -1
    cdef void turn_to(self, int32_t group) noexcept nogil

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve(self, int32_t num_slots) except -1 nogil

    cdef void join(self, int32_t slot, int32_t phase, int64_t order) noexcept nogil
    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil
