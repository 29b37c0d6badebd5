"""Delivery of statuses to Llumnix's scheduler: once per iteration, pushed and polled at intervals."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.replica_state cimport ReplicaState
from simulator.domain.request cimport Request
from simulator.routing.llumnix.account cimport LegCount, LegCounts, LocalAccount
from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.headroom cimport Headroom
from simulator.routing.llumnix.predictor cimport OnlinePredictor
from simulator.signals.view cimport View


@cython.final
cdef class StatusFeed:
    cdef View _view
    cdef Candidates _candidates
    cdef LocalAccount _account          # compared with each newer status; None: nothing is
    cdef OnlinePredictor _predictor     # fed with iterations of replicas for prefills; None: none is
    cdef const Request* _requests       # [row]; needed with an account
    cdef const Request* _legs           # [row] state of the prefill leg of each; NULL: there are none
    cdef readonly LegCounts leg_counts  # of replicas that do either leg; None: each does one
    cdef Headroom headroom              # of urgent requests, from the scheduler; None: none is kept
    cdef int64_t _push_ns, _poll_ns     # intervals; both 0: every look sees the present
    cdef int64_t _step_interval         # iterations from one status to the next; 0: it changes within them too
    cdef int64_t _num_profiled          # first iterations of a replica that the predictor learns from
    cdef int32_t _max_batched_tokens    # of replicas that report none
    cdef ReplicaState* _pushed          # [replica] as of _pushed_ns
    cdef int64_t _pushed_ns             # -1: nothing was pushed yet
    cdef int64_t _push_epoch, _poll_epoch
    cdef object _owners

    # Update the candidates to the scheduler's view at `now_ns`.
    cdef int refresh(self, int64_t now_ns) except -1 nogil

    # Parts of it: take the statuses that have arrived by now, if any; say whether a candidate has begun or ceased to
    # take requests.
    cdef bint receive(self, int64_t now_ns) except -1 nogil
    cdef bint note_door(self, int32_t i) noexcept nogil

    cdef int _look(self, int64_t now_ns) except -1 nogil
    cdef int _check_legs(self) except -1 nogil
    cdef void _take_all(self, const ReplicaState* states, const LegCount* legs, const int64_t* headroom,
                        int64_t now_ns) noexcept nogil
    cdef void _take(self, int32_t i, const ReplicaState* state, int64_t now_ns) noexcept nogil
    cdef void _take_decodes(self, int32_t i, const ReplicaState* state, const LegCount* legs) noexcept nogil
    cdef void _compare(self, int32_t i, const ReplicaState* state, int64_t now_ns) noexcept nogil
