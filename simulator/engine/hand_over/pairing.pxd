"""Who computes the prompt of a request, and who the rest: whether these are two, and when each is chosen."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Outcome
from simulator.engine.gateway.pairing_base cimport PairingBase
from simulator.engine.hand_over.operation cimport HandOver
from simulator.routing.disaggregation.base cimport Decider


@cython.final
cdef class Pairing(PairingBase):
    cdef void* _first                   # Gateway of the prefill replicas, borrowed; likewise of the decode replicas
    cdef void* _second
    cdef void* _hand_over               # HandOver, borrowed
    cdef readonly Decider decider       # None: every request is split
    cdef bint _decode_first             # the decode replica is chosen when a request comes
    cdef bint _turns_away               # a request whose prompt nobody takes, whatever else could serve it
    cdef const Outcome* _outcomes       # [row] of the workload: of some requests no token is kept
    cdef object _owners

    cdef int32_t _replica_of(self, void* gateway, int32_t place) noexcept nogil
    cdef int _keep_whole(self, int32_t row, int32_t decode, int64_t now_ns) except -1 nogil
