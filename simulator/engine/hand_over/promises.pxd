"""Requests promised to a decode replica: chosen when they arrive, and their prompts are computed elsewhere first."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.transfer cimport Transfer
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.hand_over.operation cimport End


# Count a request at the decode replica chosen beforehand, if the gateway of its decode leg does so; ends : [replica].
cdef inline int promise(Transfer* it, int32_t row, const End* ends, int64_t now_ns) except -1 nogil:
    cdef void* second = ends[it.prefill_replica].second
    if it.decode_place < 0 or not (<Gateway>second).counts_promised:
        return 0
    it.is_promised = True
    return (<Gateway>second).promise(row, it.decode_place, now_ns)


# Count it there no more: it is sent now, or will not come.
cdef inline int redeem(Transfer* it, int32_t row, const End* ends, int64_t now_ns) except -1 nogil:
    if not it.is_promised:
        return 0
    it.is_promised = False
    return (<Gateway>ends[it.prefill_replica].second).redeem(row, it.decode_place, now_ns)
