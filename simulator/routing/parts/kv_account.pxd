"""A router's own account of prefills and blocks at each replica."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Request
from simulator.routing.parts.live_blocks cimport LiveBlocks
from simulator.signals.view cimport View


@cython.final
cdef class KvAccount:
    cdef View _view
    cdef readonly LiveBlocks blocks     # of the live requests
    cdef int64_t* prefill_tokens        # [replica] uncached tokens of the requests with an unfinished prefill
    cdef int64_t _looked_ns             # of the view, when prefill ends were noted last
    cdef int64_t _now_ns                # of the last note_prefills
    cdef int64_t* _oldest_since_ns      # [replica] when its oldest unfinished prefill became the oldest
    cdef bint _decays                   # the oldest prefill of a replica counts less and less
    cdef double _base_ns, _token_ns     # predicted duration of a prefill, and of each of its tokens
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner                  # of _requests
    cdef int32_t _num_replicas
    cdef bint _tracks_prefill           # else prefill_tokens stays 0
    cdef int32_t* _uncached             # [row] tokens that its prefill computes; -1: it is at no replica
    cdef IndexLinks _links              # of _prefills
    cdef IndexList* _prefills           # [replica] rows with an unfinished prefill, the oldest first

    # A replica has a request, with `uncached` tokens to prefill; it no longer has it; its prefill is done.
    cdef int sent(self, int32_t row, int32_t replica, int64_t uncached, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef void prefilled(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil

    # Tokens to prefill at a replica, less those of the oldest prefill that are predicted to be done by then.
    cdef int64_t remaining(self, int32_t replica) noexcept nogil

    # After a look of the view: note the ends of prefills at the replicas that changed.
    cdef void note_prefills(self, int64_t now_ns) noexcept nogil

    cpdef int check(self) except -1
