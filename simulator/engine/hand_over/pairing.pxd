"""Choice of prefill and decode replicas: whether a request is split, and when each replica is chosen."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Outcome
from simulator.engine.gateway.pairing_base cimport PairingBase
from simulator.engine.hand_over.operation cimport HandOver
from simulator.routing.disaggregation.base cimport Decider


@cython.final
cdef class Pairing(PairingBase):
    cdef void* _first                   # Gateway of the prefill replicas, borrowed
    cdef void* _second
    cdef void* _hand_over               # HandOver, borrowed
    cdef readonly Decider decider       # None: every request is split
    cdef bint _decode_first             # the decode replica is chosen when a request arrives
    cdef bint _turns_away  # turn a request away if no replica takes its prompt, even if another could serve all of it
    cdef const Outcome* _outcomes       # [row] of the workload: some requests have no output tokens
    cdef object _owners

    cdef int32_t _replica_of(self, void* gateway, int32_t place) noexcept nogil
    cdef int _keep_whole(self, int32_t row, int32_t decode, int64_t now_ns) except -1 nogil
