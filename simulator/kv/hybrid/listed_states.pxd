"""States that entered the prefix cache and that their request still holds, until a tier takes them."""
from libc.stdint cimport int32_t, int64_t
cimport cython


cdef struct ListedState:
    int64_t end                 # tokens of the text that the state covers
    int32_t row, group, block


@cython.final
cdef class ListedStates:
    cdef ListedState* states    # [count] in the order of listing; those of a request and group by `end`
    cdef int32_t count
    cdef int32_t _room

    cdef int add(self, ListedState state) except -1 nogil

    # Remove the states of a request; those that it has in one block.
    cdef void drop(self, int32_t row) noexcept nogil
    cdef void drop_block(self, int32_t row, int32_t block) noexcept nogil
