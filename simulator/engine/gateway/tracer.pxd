"""Record of a router's decisions: the score and the state of each candidate replica."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.fleet.live_view cimport LiveView
from simulator.engine.output.row_stream cimport RowStream
from simulator.engine.gateway.tracer_base cimport Tracer
from simulator.routing.base cimport Router


@cython.final
cdef class DecisionTracer(Tracer):
    cdef LiveView _view
    cdef int32_t _gateway              # its index
    cdef int32_t _most                  # candidates recorded per decision
    cdef RowStream _decisions
    cdef RowStream _candidates
    cdef bint _has_begun
    cdef bint _is_sole_viewer           # no other component reads the replicas
    cdef double* _scores                # [replica]
    cdef int32_t* _ranking              # [_most] the best candidates, the best first
    cdef int32_t _num_ranked
    cdef int32_t _num_candidates        # of this decision
    cdef ReplicaState _state            # of a candidate, where the view is live

    cdef int _score(self, Router router, int32_t row, int64_t now_ns) except -1 nogil
    cdef void _rank(self) noexcept nogil
    cdef int _write_candidates(self, int64_t now_ns) except -1 nogil
    cdef const ReplicaState* _seen(self, int32_t replica, int64_t now_ns) except NULL nogil
