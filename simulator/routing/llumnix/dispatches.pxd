"""Requests at each replica: records of dispatches, linked by replica and by request."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef struct Dispatch:               # one request at one replica
    int64_t sent_ns
    int64_t tokens                  # of its prompt; in lite mode of its text, as far as reported
    int64_t uncomputed_tokens       # of its prompt, without cache hits where they are looked up
    int32_t row                     # of the request
    int32_t replica
    int32_t gateway                 # lite mode: the gateway that sent it
    int32_t next_of_replica         # the next dispatch to this replica; -1: none; as in the next two
    int32_t previous_of_replica
    int32_t next_of_row             # the next dispatch of this request, elsewhere
    int8_t infer_type               # the role in which it was sent; NEUTRAL: both
    int8_t is_found                 # a status has shown it: no longer counted, but remembered while it waits
    int8_t was_waiting              # the last status shows it among requests that waited lately
    int8_t is_waiting               # ... among requests that wait
    int8_t is_prefilled             # lite mode: it has its first token


cdef class Dispatches:
    cdef Dispatch* items
    cdef int32_t* first_of_replica  # [replica]; -1: none
    cdef int32_t* first_of_row      # [row]
    cdef int32_t _room
    cdef int32_t _free              # first unused item, linked by next_of_replica
    cdef int32_t _num_replicas
    cdef int32_t _num_rows

    # The dispatch of a request to a replica; -1: none.
    cdef inline int32_t find(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self.first_of_row[row]
        while index >= 0 and self.items[index].replica != replica:
            index = self.items[index].next_of_row
        return index

    # A new record, all zero but for these two.
    cdef int32_t insert(self, int32_t row, int32_t replica) except -1 nogil

    cdef void drop(self, int32_t index) noexcept nogil

    cdef int _grow(self) except -1 nogil

    # Raise RuntimeError if a record is not in the lists of its replica and its request, nor unused.
    cpdef int check(self) except -1
