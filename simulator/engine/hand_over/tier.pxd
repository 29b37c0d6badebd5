"""The KV of prefill replicas, as the scheduler of a replica sees it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.domain.transfer cimport Transfer
from simulator.engine.replica.departures cimport Departures
from simulator.kv.tier cimport External, KVTier, LoadEnd


cdef enum Place:                        # in the order of PLACES in plan.py
    ASKED_FOR
    RESERVED
    AFTERWARDS


@cython.final
cdef class RemoteTier(KVTier):
    cdef Transfer* _transfers           # [row] of the hand-over, borrowed
    cdef const Request* _requests
    cdef Departures _departures
    cdef int32_t _num_clients           # rows from here on are prefill legs
    cdef Place _place
    cdef bint _comes_early              # requests are here before their prompts have been computed
    cdef bint _brings_token             # KV comes with the token that follows it
    cdef bint _needs_token              # which is waited for even where nothing is missing
    cdef bint _hears_of_layers          # when a prefill leg begins is told
    cdef bint _has_acted                # since a step was formed; in that step
    cdef bint _acts
    cdef bint _recomputes               # what does not come
    cdef object _owners                 # the arrays these pointers borrow from

    cdef bint _has_kv(self, int32_t row) noexcept nogil
