"""The eviction policy of a level of a tier: its contract."""
from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython

from simulator.kv.tiers.chunk_table cimport ChunkTable


cdef enum Use:                  # uses that a request made of a chunk of its text, while it was here
    SEEN = 1                    # the request offered or read it
    INSERTED = 2                # it was written for this request
    REUSED = 4                  # it was there already, when the request had not written it before
    MISSED = 8                  # it was new when it was offered; also if there was no room


cdef class EvictionPolicy:
    cdef ChunkTable table
    cdef bint takes_runs        # private text may be runs: the policy treats such chunks alike
    cdef bint hears_of_copies   # `copied` is called

    # The list that new chunks are appended to.
    cdef int32_t newcomers(self) noexcept nogil

    # A new chunk is offered, for the first time by this request; called from the last chunk to the first. ->
    # `remembered`: the element with its name, 0: there is none.
    cdef void missed(self, int32_t remembered) noexcept nogil

    # Evict `count` idle chunks that are not under this guard; there are as many.
    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil

    # A copy is done, and a chunk of it is idle now; called from the last chunk to the first.
    cdef void copied(self, int32_t element) noexcept nogil

    # A request that left made this use (Use) of a chunk that is there; called from the last chunk to the first. The
    # same for the first `count` chunks of its text: an absent chunk is 0, and an unused one has no use.
    cdef void closed(self, int32_t element, int use) noexcept nogil
    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil

    # Evict `count` chunks of a list in its order: `evict` of a policy with a single list.
    @cython.final
    cdef int evict_from(self, int32_t listed, int64_t count, int64_t guard) except -1 nogil

    cdef object _log            # list of the evicted slots, one list per eviction; None: not kept
    cdef int note(self, int32_t element) except -1 nogil
    cdef int begin_note(self) except -1 nogil
