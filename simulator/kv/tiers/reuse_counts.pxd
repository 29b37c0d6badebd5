"""How often each of the recently offered chunks was offered."""
from libc.stdint cimport int32_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.index_list cimport IndexLinks, IndexList


@cython.final
cdef class ReuseCounts:
    cdef HashMap _entry_of      # hash -> entry
    cdef uint64_t* _hashes      # [entry]
    cdef int32_t* _counts       # [entry]
    cdef IndexLinks _links
    cdef IndexList _by_age      # entries in use, the one offered longest ago first
    cdef int32_t _most          # entries at most

    # Count another offer; return how often the chunk was offered.
    cdef int32_t count(self, uint64_t hash) except -1 nogil
