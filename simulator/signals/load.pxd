"""Load of a replica, from the fields of a view."""
from libc.stdint cimport int32_t, int64_t

from simulator.signals.view cimport View


# Waiting, running and in flight: a running request counts twice, as in BLIS and in routers that add scraped values to
# their own counts.
cdef inline int64_t effective_load(View view, int32_t replica) noexcept nogil:
    return <int64_t>view.states[replica].waiting + view.states[replica].running + view.accounts[replica].in_flight


# Share of KV blocks in use; 0 for a replica that never reported.
cdef inline double kv_usage(View view, int32_t replica) noexcept nogil:
    cdef int32_t num_blocks = view.states[replica].num_blocks
    return <double>view.states[replica].used_blocks / num_blocks if num_blocks > 0 else 0.0
