"""Llumnix's selectors: which of the candidates that passed the filters is chosen."""
from libc.stdint cimport int8_t, int32_t

from simulator.core.draws cimport Draws
from simulator.routing.llumnix.candidates cimport Candidates


cdef enum SelectorKind:             # SELECTOR_NAMES in composition.py follows this order
    BY_METRICS                      # the best, by one metric after the other, or one of the best
    FIXED_PREFERENCE                # the last one again, as long as it is there
    SLO_PREFILL_ADAPTIVE            # least TTFT; among equals one that is reserved for prefill
    SLO_DECODE_ADAPTIVE             # the fullest that keeps its pace, to leave others empty


cdef enum:
    MAX_METRICS = 8                 # of one selector


cdef struct Selector:
    int8_t kind
    int32_t num_metrics
    int32_t metrics[MAX_METRICS]    # BY_METRICS: in order of weight
    int32_t top_k                   # BY_METRICS: draw one of the k best
    float tpot_limit_ms             # SLO_DECODE_ADAPTIVE, fallback: above it the least loaded is taken
    int32_t last                    # FIXED_PREFERENCE: -1: none yet


# The chosen one of `kept`; -1: there is none.
cdef int32_t select(Candidates candidates, Selector* selector, const int32_t* kept, int32_t num_kept,
                    bint is_fallback, Draws draws) noexcept nogil

# Take a selector from a SelectorSpec.
cdef int fill_selector(Selector* selector, object spec, bint is_lite) except -1
