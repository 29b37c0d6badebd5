"""Llumnix's metrics: one number per candidate, by which filters judge and selectors order.

Source: llumnix-project/llumnix at 8a693b4, metrics.go. Values are float32 there, and here.
"""
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY

from simulator.routing.llumnix.candidates cimport Candidate
from simulator.routing.llumnix.predictor cimport chunked_prefill_ms, decode_ms


cdef inline int64_t decode_batch_size(const Candidate* c) noexcept nogil:
    return (<int64_t>c.hybrid_decodes + c.loading + c.waiting_decodes + c.running_decodes + c.in_flight_decodes)


cdef inline int64_t all_decodes_tokens(const Candidate* c) noexcept nogil:
    return (c.hybrid_decode_tokens + c.waiting_decode_tokens + c.running_decode_tokens + c.loading_tokens
            + c.in_flight_decode_tokens)


cdef inline int64_t all_prefills_tokens(const Candidate* c) noexcept nogil:
    return (c.waiting_prefill_tokens + c.running_prefill_tokens + c.in_flight_prefill_tokens - c.predicted_tokens)


cdef inline int64_t projected_tokens(const Candidate* c) noexcept nogil:
    """Return the KV tokens that all decodes here will have taken; prefills in flight are no part of it."""
    return (c.used_tokens + c.waiting_prefill_tokens + c.unallocated_prefill_tokens + c.hybrid_unallocated_tokens
            + c.in_flight_decode_tokens)


cdef float predicted_ttft(Candidates candidates, int32_t i, int64_t prompt_tokens) noexcept nogil:
    """Return the time in ms to the first token of a prompt sent there; its hits do not count."""
    cdef const Candidate* c = &candidates.items[i]
    cdef int64_t age_ms = candidates.age_ms(i)
    cdef double decode = decode_ms(candidates.tpot, decode_batch_size(c), all_decodes_tokens(c))
    cdef double backlog = chunked_prefill_ms(
        candidates.ttft, c.waiting_prefill_tokens + c.running_prefill_tokens, c.max_batched_tokens, decode)
    cdef double result
    if backlog != backlog:
        return INFINITY
    if age_ms > <int64_t>backlog:       # its backlog is done by now
        result = chunked_prefill_ms(
            candidates.ttft, c.in_flight_prefill_tokens + prompt_tokens, c.max_batched_tokens, decode)
    else:
        result = chunked_prefill_ms(
            candidates.ttft, all_prefills_tokens(c) + prompt_tokens, c.max_batched_tokens, decode) - age_ms
    return INFINITY if result != result else <float>result


cdef float predicted_tpot(Candidates candidates, int32_t i, int64_t prompt_tokens) noexcept nogil:
    """Return the duration in ms of a decode iteration with one more sequence."""
    cdef const Candidate* c = &candidates.items[i]
    cdef double result = decode_ms(candidates.tpot, decode_batch_size(c) + 1, all_decodes_tokens(c) + prompt_tokens)
    return INFINITY if result != result else <float>result


cdef float freeness(const Candidate* c) noexcept nogil:
    """Return the free KV tokens per decoding sequence: iterations until it is full.

    Sun et al., Llumnix, OSDI 2024, section 4.4: (memory - sum of virtual usages) / batch size.
    """
    cdef int64_t free_tokens = c.total_tokens - projected_tokens(c) - c.headroom_tokens
    return <float>free_tokens / <float>max(<int64_t>1, decode_batch_size(c))


cdef float metric_value(Candidates candidates, int32_t metric, int32_t i, int64_t prompt_tokens) noexcept nogil:
    cdef const Candidate* c = &candidates.items[i]
    if metric == KV_CACHE_USAGE_RATIO_PROJECTED:
        return <float>projected_tokens(c) / <float>c.total_tokens if c.total_tokens != 0 else FLT_MAX
    if metric == DECODE_BATCH_SIZE:
        return <float>decode_batch_size(c)
    if metric == NUM_WAITING_REQUESTS:
        return <float>(<int64_t>c.waiting + c.in_flight)
    if metric == ALL_PREFILLS_TOKENS_NUM:
        return <float>all_prefills_tokens(c)
    if metric == KV_CACHE_HIT_LEN:
        return <float>c.hit_tokens
    if metric == CACHE_AWARE_ALL_PREFILLS_TOKENS_NUM:
        return <float>(c.miss_tokens + all_prefills_tokens(c))
    if metric == NUM_REQUESTS:          # a whole request in flight counts twice
        return <float>(<int64_t>c.waiting + c.loading + c.running + c.in_flight_prefills + c.in_flight_decodes)
    if metric == ALL_DECODES_TOKENS_NUM:
        return <float>all_decodes_tokens(c)
    if metric == NUM_REQUESTS_LITE:
        return <float>c.lite_requests
    if metric == NUM_TOKENS:
        return <float>c.lite_tokens
    if metric == PREDICTED_TTFT:
        return predicted_ttft(candidates, i, prompt_tokens)
    if metric == PREDICTED_TPOT:
        return predicted_tpot(candidates, i, prompt_tokens)
    return freeness(c)


cdef void compute_metric(Candidates candidates, int32_t metric, const int32_t* members, int32_t num_members,
                         int64_t prompt_tokens) noexcept nogil:
    cdef float* values = candidates.metrics + <int64_t>metric * candidates.count
    cdef int32_t k
    for k in range(num_members):
        values[members[k]] = metric_value(candidates, metric, members[k], prompt_tokens)
