"""Llumnix's metrics: one number per candidate, by which filters judge and selectors order."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.llumnix.candidates cimport Candidates


cdef enum Metric:                   # METRIC_NAMES in composition.py follows this order
    KV_CACHE_USAGE_RATIO_PROJECTED
    DECODE_BATCH_SIZE
    NUM_WAITING_REQUESTS
    ALL_PREFILLS_TOKENS_NUM
    KV_CACHE_HIT_LEN
    CACHE_AWARE_ALL_PREFILLS_TOKENS_NUM
    NUM_REQUESTS
    ALL_DECODES_TOKENS_NUM
    NUM_REQUESTS_LITE               # `num_requests` of lite mode
    NUM_TOKENS
    PREDICTED_TTFT
    PREDICTED_TPOT
    FREENESS
    NUM_METRICS


# The value for a request of `prompt_tokens`; 0: for none.
cdef float metric_value(Candidates candidates, int32_t metric, int32_t i, int64_t prompt_tokens) noexcept nogil

# Fill candidates.metrics for the candidates in `members`.
cdef void compute_metric(Candidates candidates, int32_t metric, const int32_t* members, int32_t num_members,
                         int64_t prompt_tokens) noexcept nogil


# Is a value better than another? More is better of hits and of freeness, less of all else.
cdef inline bint is_less(int32_t metric, float a, float b) noexcept nogil:
    return a > b if metric == KV_CACHE_HIT_LEN or metric == FREENESS else a < b


# Is candidate a before b by the first of the `metrics` in which they differ?
cdef inline bint is_before(Candidates candidates, const int32_t* metrics, int32_t num_metrics, int32_t a,
                           int32_t b) noexcept nogil:
    cdef int32_t i
    cdef float x, y
    for i in range(num_metrics):
        x, y = candidates.metric(metrics[i], a), candidates.metric(metrics[i], b)
        if is_less(metrics[i], x, y):
            return True
        if is_less(metrics[i], y, x):
            return False
    return False
