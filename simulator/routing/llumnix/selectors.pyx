"""Llumnix's selectors: which of the candidates that passed the filters is chosen.

Source: llumnix-project/llumnix at 8a693b4, scheduling_selectors.go. Where the order of a Go map decides there, which is
another one each time, equals are drawn from here if they are ordered by metrics alone; else the first one wins.
"""
from libc.string cimport memset

from simulator.domain.replica_state cimport DECODE, PREFILL
from simulator.routing.llumnix.metrics cimport PREDICTED_TPOT, PREDICTED_TTFT, compute_metric, is_before

from simulator.routing.llumnix.composition import SELECTOR_NAMES, metric_code


cdef int32_t best(Candidates candidates, const Selector* selector, const int32_t* kept,
                  int32_t num_kept) noexcept nogil:
    cdef int32_t k, chosen = -1
    for k in range(num_kept):
        if not candidates.flags[kept[k]] and (chosen < 0 or is_before(
                candidates, selector.metrics, selector.num_metrics, kept[k], chosen)):
            chosen = kept[k]
    return chosen


cdef int32_t one_of_equals(Candidates candidates, const Selector* selector, const int32_t* kept, int32_t num_kept,
                           int32_t chosen, Draws draws) noexcept nogil:
    """Return a uniform draw among those that equal the best."""
    cdef int32_t k, equals = 0, passed_over
    for k in range(num_kept):
        equals += not is_before(candidates, selector.metrics, selector.num_metrics, chosen, kept[k])
    if equals == 1:
        return chosen
    passed_over = draws.below(equals)
    for k in range(num_kept):
        if not is_before(candidates, selector.metrics, selector.num_metrics, chosen, kept[k]):
            if passed_over == 0:
                return kept[k]
            passed_over -= 1
    return chosen


cdef int32_t by_metrics(Candidates candidates, const Selector* selector, const int32_t* kept, int32_t num_kept,
                        Draws draws) noexcept nogil:
    """Return the best; of several allowed, draw a rank and pass over all that are better."""
    cdef int32_t passed_over, chosen
    cdef int32_t choices = min(selector.top_k, num_kept)
    memset(candidates.flags, 0, candidates.count)
    chosen = best(candidates, selector, kept, num_kept)
    if selector.top_k == 1:
        return one_of_equals(candidates, selector, kept, num_kept, chosen, draws)
    passed_over = draws.below(choices) if choices > 1 else 0
    while passed_over > 0:
        candidates.flags[chosen] = True
        chosen = best(candidates, selector, kept, num_kept)
        passed_over -= 1
    return chosen


cdef int32_t fixed_preference(Selector* selector, const int32_t* kept, int32_t num_kept) noexcept nogil:
    cdef int32_t k
    for k in range(num_kept):
        if kept[k] == selector.last:
            return selector.last
    selector.last = kept[0]
    return selector.last


cdef int32_t slo_prefill(Candidates candidates, const int32_t* kept, int32_t num_kept) noexcept nogil:
    cdef int32_t k, chosen = kept[0]
    cdef float value, least = candidates.metric(PREDICTED_TTFT, chosen)
    for k in range(1, num_kept):
        value = candidates.metric(PREDICTED_TTFT, kept[k])
        if value < least or (not least < value and candidates.items[kept[k]].reserved == PREFILL):
            chosen, least = kept[k], value
    return chosen


cdef int32_t slo_decode(Candidates candidates, const int32_t* kept, int32_t num_kept) noexcept nogil:
    """Return the slowest, which the filters hold below the limit: the others may fall idle."""
    cdef int32_t k, chosen = kept[0]
    for k in range(num_kept):
        if candidates.items[kept[k]].reserved == DECODE:
            return kept[k]
        if candidates.metric(PREDICTED_TPOT, kept[k]) > candidates.metric(PREDICTED_TPOT, chosen):
            chosen = kept[k]
    return chosen


cdef int32_t slo_decode_fallback(Candidates candidates, float limit_ms, const int32_t* kept,
                                 int32_t num_kept) noexcept nogil:
    """Return the slowest below the limit, least backlog first among equals; if all are above, the fastest.

    The backlog is the TTFT of an empty request; it stays as the metric of the candidates in `kept`.
    """
    cdef int32_t k, i, within = -1, least = -1
    cdef float tpot
    compute_metric(candidates, PREDICTED_TTFT, kept, num_kept, 0)
    for k in range(num_kept):
        i = kept[k]
        tpot = candidates.metric(PREDICTED_TPOT, i)
        if tpot < limit_ms and (within < 0 or tpot > candidates.metric(PREDICTED_TPOT, within) or (
                tpot == candidates.metric(PREDICTED_TPOT, within)
                and candidates.metric(PREDICTED_TTFT, i) < candidates.metric(PREDICTED_TTFT, within))):
            within = i
        if least < 0 or tpot < candidates.metric(PREDICTED_TPOT, least):
            least = i
    return within if within >= 0 else least


cdef int32_t select(Candidates candidates, Selector* selector, const int32_t* kept, int32_t num_kept,
                    bint is_fallback, Draws draws) noexcept nogil:
    if num_kept == 0:
        return -1
    if selector.kind == FIXED_PREFERENCE:
        return fixed_preference(selector, kept, num_kept)
    if selector.kind == SLO_PREFILL_ADAPTIVE:
        return slo_prefill(candidates, kept, num_kept)
    if selector.kind == SLO_DECODE_ADAPTIVE:
        if is_fallback:
            return slo_decode_fallback(candidates, selector.tpot_limit_ms, kept, num_kept)
        return slo_decode(candidates, kept, num_kept)
    return by_metrics(candidates, selector, kept, num_kept, draws)


cdef int fill_selector(Selector* selector, object spec, bint is_lite) except -1:
    if len(spec.metrics) > MAX_METRICS:
        raise ValueError(f"at most {MAX_METRICS} metrics, found {len(spec.metrics)}")
    selector.kind = SELECTOR_NAMES.index(spec.name)
    selector.num_metrics = <int32_t>len(spec.metrics)
    for i, name in enumerate(spec.metrics):
        selector.metrics[<int32_t>i] = metric_code(name, is_lite)
    selector.top_k = spec.top_k
    selector.tpot_limit_ms = spec.tpot_limit_ms
    selector.last = -1
    return 0
