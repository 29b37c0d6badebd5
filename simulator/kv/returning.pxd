"""Blocks that preempted requests left behind and may find again: private text, which the prefix cache does not list."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.hash_map cimport HashMap


cdef struct LeftBlock:
    int32_t index               # place in the text
    int32_t block               # whether it still holds that, its hash tells


cdef struct Returning:          # what one request left behind
    int32_t row                 # of a free entry: the next free one, -1: none
    int32_t count
    int32_t room
    LeftBlock* blocks           # in the order in which they were first cached


@cython.final
cdef class ReturningBlocks:
    cdef readonly int32_t size          # requests that left something
    cdef Returning* _entries
    cdef int32_t _num_entries, _room
    cdef int32_t _free                  # first free entry; -1: none
    cdef HashMap _entry_of              # row -> entry

    # What `row` left behind; NULL if nothing. Valid until the next `keep`.
    cdef Returning* get(self, int32_t row) noexcept nogil

    # Note blocks begin .. end - 1 of a table.
    cdef int keep(self, int32_t row, const int32_t* table, int32_t begin, int32_t end) except -1 nogil

    # The request will not come back.
    cdef void drop(self, int32_t row) noexcept nogil

    cdef Returning* _entry(self, int32_t row) except NULL nogil
