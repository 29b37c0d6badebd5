"""Requests that were sent to a replica and are not yet seen in a status of it: the in-flight account."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidate, Candidates
from simulator.routing.llumnix.dispatches cimport Dispatch, Dispatches


@cython.final
cdef class LocalAccount(Dispatches):
    cdef Candidates _candidates     # it keeps their in-flight fields
    cdef Candidate* _replicas       # the items of _candidates
    cdef bint _is_cache_aware
    cdef bint _leaks                # as upstream: a reverted prefill stays in in_flight, and a request that returns
                                    # while its last visit is remembered is not counted
    cdef int64_t _staleness_s

    # A request was sent. Ignored: a second time in one role, or after both roles.
    cdef int add(self, int32_t row, int32_t replica, int8_t infer_type, int64_t tokens, int64_t hit_tokens,
                 int64_t now_ns) except -1 nogil

    # Revert `add` for a prefill without a decode.
    cdef int revert_prefill(self, int32_t row, int32_t replica) except -1 nogil

    # Forget a request at one replica, or, replica < 0, everywhere.
    cdef void remove(self, int32_t row, int32_t replica) noexcept nogil

    # A replica has restarted, empty.
    cdef void restart(self, int32_t replica) noexcept nogil

    # Compare with a newer status of the replica, by was_waiting and is_waiting of its dispatches. If hits are looked up
    # and `waiting` requests wait, their tokens to compute are replaced by this account's values.
    cdef void reconcile(self, int32_t replica, int32_t waiting, int64_t now_ns) noexcept nogil

    cdef void _count(self, const Dispatch* one, int8_t infer_type, int32_t sign) noexcept nogil
