"""Which chunks of a level of a tier go when others come: what a policy is asked, and when."""
from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython

from simulator.kv.tiers.chunk_table cimport ChunkTable


cdef enum Use:                  # what a request did with a chunk of its text, while it was here
    SEEN = 1                    # it offered or read it
    INSERTED = 2                # it was written for this request
    REUSED = 4                  # it was there already, when the request had not written it before
    MISSED = 8                  # it was new when it was offered; also if there was no room


cdef class EvictionPolicy:
    cdef ChunkTable table
    cdef bint takes_runs        # private text may be runs: the policy does not tell such chunks apart
    cdef bint hears_of_copies   # see `copied`

    # The list at whose end new chunks come.
    cdef int32_t newcomers(self) noexcept nogil

    # A new chunk is offered, the first time by this request; asked from the last to the first. -> `remembered`: what is
    # known of it, 0: nothing.
    cdef void missed(self, int32_t remembered) noexcept nogil

    # Let `count` idle chunks go that are not under this guard; there are as many.
    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil

    # Nothing is written to an idle chunk any more, or read from it: a copy was done; from the last to the first.
    cdef void copied(self, int32_t element) noexcept nogil

    # A request has left, which made this use (Use) of a chunk that is there; asked from the last to the first. The same
    # for the first `count` chunks of its text: those not there are 0, and not all of the others were used.
    cdef void closed(self, int32_t element, int use) noexcept nogil
    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil

    # Let `count` of a list go, the first first: what `evict` does where one list settles it.
    @cython.final
    cdef int evict_from(self, int32_t listed, int64_t count, int64_t guard) except -1 nogil

    cdef object _log            # list of the slots that went, a list for each time; None: not kept
    cdef int note(self, int32_t element) except -1 nogil
    cdef int begin_note(self) except -1 nogil
