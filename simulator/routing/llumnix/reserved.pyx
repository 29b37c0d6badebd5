"""Adaptive P/D reserves one candidate for prefills and one for decodes, of any infer type.

Source: llumnix-project/llumnix at 8a693b4, cms_read_client.go:setReservedInstance.
"""
from libc.stdint cimport int8_t, int32_t

from simulator.domain.replica_state cimport DECODE, PREFILL
from simulator.routing.llumnix.candidates cimport NOT_RESERVED, Candidates
from simulator.routing.llumnix.metrics cimport ALL_PREFILLS_TOKENS_NUM, DECODE_BATCH_SIZE, metric_value


cdef bint is_reserved(Candidates candidates, int8_t infer_type) noexcept nogil:
    cdef int32_t i
    cdef bint found = False
    for i in range(candidates.count):
        if candidates.items[i].reserved == infer_type:
            if candidates.items[i].is_schedulable:
                found = True
            else:
                candidates.items[i].reserved = NOT_RESERVED
    return found


cdef void elect(Candidates candidates, int8_t infer_type, int32_t other_work, int32_t own_work) noexcept nogil:
    """Reserve the first that has none of the other work, else the one that has least of its own."""
    cdef int32_t i, chosen = -1
    cdef float value, least = 0
    for i in range(candidates.count):
        if candidates.items[i].reserved != NOT_RESERVED or not candidates.items[i].is_schedulable:
            continue
        if metric_value(candidates, other_work, i, 0) == 0:
            chosen = i
            break
        value = metric_value(candidates, own_work, i, 0)
        if chosen < 0 or value < least:
            chosen, least = i, value
    if chosen >= 0:
        candidates.items[chosen].reserved = infer_type


cdef void reserve(Candidates candidates) noexcept nogil:
    if not is_reserved(candidates, DECODE):
        elect(candidates, DECODE, ALL_PREFILLS_TOKENS_NUM, DECODE_BATCH_SIZE)
    if not is_reserved(candidates, PREFILL):
        elect(candidates, PREFILL, DECODE_BATCH_SIZE, ALL_PREFILLS_TOKENS_NUM)


def reserve_all(Candidates candidates):
    """Reserve one for each where none is (for Python and tests)."""
    reserve(candidates)
