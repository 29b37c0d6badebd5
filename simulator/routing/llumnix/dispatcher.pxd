"""Llumnix's dispatch: metrics, filters, selector, for whole requests and for prefill and decode."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.draws cimport Draws
from simulator.routing.llumnix.account cimport LocalAccount
from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.filters cimport FilterChain
from simulator.routing.llumnix.predictor cimport OnlinePredictor
from simulator.routing.llumnix.selectors cimport Selector


cdef enum:
    NUM_INFER_TYPES = 3
    MAX_COMPUTED = 32               # metrics of one pipeline


cdef struct Pipeline:               # of one infer type
    FilterChain filters
    Selector selector
    int32_t metrics[MAX_COMPUTED]
    int32_t num_metrics
    int8_t is_defined               # 0: the policy has none for this type


cdef enum DispatchMode:
    WHOLE                           # one replica serves it all
    PD_BATCH                        # prefill and decode are chosen in one call
    PD_STAGED                       # in two calls


cdef struct Choice:                 # candidates; -1: none, or not requested
    int32_t neutral
    int32_t prefill
    int32_t decode
    int8_t has_groups               # 0: a group that the mode needs is missing


@cython.final
cdef class Dispatcher:
    cdef readonly Candidates candidates
    cdef readonly LocalAccount account      # None: nothing in flight is counted
    cdef readonly OnlinePredictor predictor     # None: progress since a status is not predicted
    cdef Draws draws
    cdef Pipeline pipelines[NUM_INFER_TYPES]
    cdef int32_t* members[NUM_INFER_TYPES]  # candidates that a pipeline looks at
    cdef int32_t num_members[NUM_INFER_TYPES]
    cdef int32_t num_typed[NUM_INFER_TYPES]     # candidates of each infer type
    cdef int32_t* kept                      # members that passed the last filters
    cdef int32_t num_kept
    cdef bint _is_adaptive          # prefill and decode choose among all
    cdef bint _is_compatible        # upstream's prediction, which is always 0
    cdef int64_t _max_batched_tokens
    cdef object _arrays

    # Sort candidates into groups by infer type. Call it when types change.
    cdef void regroup(self) noexcept nogil

    # Compute the metrics of all groups for a request of `prompt_tokens`. Before it: candidates.begin, and hits.
    cdef void measure(self, int64_t prompt_tokens) noexcept nogil

    # Filter a group into `kept`; return whether it took the second pass.
    cdef bint sift(self, int8_t infer_type) except -1 nogil

    # Filter and select; -1: none can take it.
    cdef int32_t pick(self, int8_t infer_type) except -2 nogil

    # A whole call of the scheduler after `measure`; the chosen replicas are added to the account. For PD_STAGED
    # `infer_type` is the stage.
    cdef int choose(self, DispatchMode mode, int8_t infer_type, int32_t row, int64_t prompt_tokens,
                    Choice* choice) except -1 nogil

    cdef int _note(self, int32_t row, int32_t chosen, int8_t infer_type, int64_t prompt_tokens) except -1 nogil
    cdef void _predict(self) noexcept nogil
    cdef int _refuse(self, int8_t infer_type) except -1 nogil
