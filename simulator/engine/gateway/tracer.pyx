"""Record of a router's decisions: the score and the state of each candidate replica.

A replica is a candidate if the router would take it at all. Regret is the best score minus the score of the chosen
replica; for a router without scores, the score is minus the effective load (waiting + running + in flight).
Source: counterfactual regret of BLIS (inference-sim, sim/cluster/counterfactual.go).
"""
from libc.math cimport INFINITY, NAN, isfinite
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport cython

from simulator.domain.replica_state cimport ReplicaAccount, ReplicaState
from simulator.domain.trace_rows cimport CandidateRow, DecisionRow
from simulator.engine.fleet.live_view cimport LiveView
from simulator.engine.gateway.tracer_base cimport Tracer
from simulator.engine.output.row_stream cimport RowStream
from simulator.engine.replica.observation cimport observe
from simulator.engine.replica.replica cimport Replica
from simulator.routing.base cimport Router


@cython.final
cdef class DecisionTracer(Tracer):
    """Record the decisions of one gateway, without changing any.

    view : of the router.
    gateway : index of the gateway.
    most : candidates recorded per decision, the best first; >= 1.
    decisions, candidates : RowStream of `records.DECISION` and `records.CANDIDATE`; gateways may share them.
    """

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

    def __cinit__(self, LiveView view, int32_t gateway, int32_t most, RowStream decisions, RowStream candidates):
        self._view, self._gateway, self._most = view, gateway, min(most, view.num_replicas)
        self._decisions, self._candidates = decisions, candidates
        self._scores = <double*>calloc(view.num_replicas, sizeof(double))
        self._ranking = <int32_t*>calloc(self._most, sizeof(int32_t))
        if self._scores == NULL or self._ranking == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._scores)
        free(self._ranking)

    cdef int decided(self, Router router, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef DecisionRow* decision
        if router.scored != NULL:
            memcpy(self._scores, router.scored, self._view.num_replicas * sizeof(double))
        else:
            self._score(router, row, now_ns)
        self._rank()
        decision = <DecisionRow*>self._decisions.add()
        decision.time_ns, decision.request, decision.entrance = now_ns, row, self._gateway
        decision.num_candidates = self._num_candidates
        decision.best_score = self._scores[self._ranking[0]] if self._num_candidates > 0 else NAN
        decision.replica, decision.score = -1, NAN
        if replica >= 0:
            decision.replica, decision.score = self._view.accounts[replica].replica, self._scores[replica]
            if isfinite(decision.best_score) and isfinite(decision.score):
                decision.regret = max(decision.best_score - decision.score, 0.0)
        return self._write_candidates(now_ns)

    cdef int _score(self, Router router, int32_t row, int64_t now_ns) except -1 nogil:
        """Compute scores without leaving a snapshot that other readers would see."""
        cdef int64_t taken_ns = self._view._taken_ns
        if not self._has_begun:                 # by now every other reader has requested its fields
            self._has_begun = True
            self._is_sole_viewer = not self._view.wants_states()
            self._view.wants_counts = self._view.wants_counts or self._is_sole_viewer       # for the effective load
        if not self._is_sole_viewer:
            self._view._taken_ns = now_ns
        router.score(row, now_ns, self._scores)
        if not self._is_sole_viewer:
            self._view._taken_ns = taken_ns
        return 0

    cdef void _rank(self) noexcept nogil:
        """Put the best candidates in order."""
        cdef int32_t i, place
        self._num_ranked = self._num_candidates = 0
        for i in range(self._view.num_replicas):
            if not self._view.accounts[i].is_routable or not self._scores[i] > -INFINITY:       # NaN is no candidate
                continue
            self._num_candidates += 1
            place = self._num_ranked
            if place == self._most:
                place -= 1
                if self._scores[i] <= self._scores[self._ranking[place]]:
                    continue
            else:
                self._num_ranked += 1
            while place > 0 and self._scores[i] > self._scores[self._ranking[place - 1]]:
                self._ranking[place] = self._ranking[place - 1]
                place -= 1
            self._ranking[place] = i

    cdef int _write_candidates(self, int64_t now_ns) except -1 nogil:
        cdef CandidateRow* candidate
        cdef const ReplicaAccount* account
        cdef const ReplicaState* state
        cdef int32_t rank
        for rank in range(self._num_ranked):
            state = self._seen(self._ranking[rank], now_ns)
            account = &self._view.accounts[self._ranking[rank]]
            candidate = <CandidateRow*>self._candidates.add()
            candidate.decision, candidate.rank = self._decisions.total - 1, rank
            candidate.score, candidate.replica = self._scores[self._ranking[rank]], account.replica
            candidate.waiting, candidate.running, candidate.in_flight = state.waiting, state.running, account.in_flight
            candidate.used_blocks, candidate.free_blocks = state.used_blocks, state.num_blocks - state.used_blocks
        return 0

    cdef const ReplicaState* _seen(self, int32_t replica, int64_t now_ns) except NULL nogil:
        """Return the state of a replica as visible to the router."""
        if self._view._interval_ns > 0:
            return &self._view.states[replica]
        observe(<Replica>self._view._replicas[replica], now_ns, &self._state)
        return &self._state
