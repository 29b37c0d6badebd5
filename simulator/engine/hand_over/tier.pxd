"""The KV of prefill replicas, as the scheduler of a replica sees it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.domain.transfer cimport Transfer
from simulator.engine.replica.departures cimport Departures
from simulator.kv.tier cimport External, KVTier, LoadEnd


cdef enum Place:                        # by index in PLACES in plan.py
    ASKED_FOR
    RESERVED
    AFTERWARDS


@cython.final
cdef class RemoteTier(KVTier):
    cdef Transfer* _transfers           # [row] HandOver's, borrowed
    cdef const Request* _requests
    cdef Departures _departures
    cdef int32_t _num_clients           # rows from here on are prefill legs
    cdef Place _place
    cdef bint _comes_early              # requests are queued before their prompts have been computed
    cdef bint _has_first_token          # KV arrives with the token that follows it
    cdef bint _needs_token              # that token is waited for even if no KV is missing
    cdef bint _hears_of_layers          # the begin of a prefill leg is reported
    cdef bint _has_acted                # the tier has acted since a step was formed; _acts: in that step
    cdef bint _acts
    cdef bint _recomputes               # it recomputes KV that does not arrive
    cdef object _owners                 # owners of the borrowed arrays

    cdef bint _has_kv(self, int32_t row) noexcept nogil
