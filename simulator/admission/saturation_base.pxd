"""How saturated the replicas behind a gate are: the one question a detector answers."""
from libc.stdint cimport int32_t, int64_t

from simulator.signals.view cimport View


cdef class SaturationDetector:
    cdef readonly View view             # the replicas behind the gate
    cdef readonly bint reads_state      # it looks at what they report; set in __init__

    # 0: idle; 1 and above: no more requests should come. Finite.
    cdef double saturation(self, int64_t now_ns) except -1.0 nogil


# The mean over the replicas that can be routed to of the larger of two ratios: waiting requests to `waiting`, and the
# share of KV blocks in use to `kv_usage`. No such replica: 1. Call `view.look` first.
cdef inline double mean_utilisation(View view, double waiting, double kv_usage) noexcept nogil:
    cdef int32_t i, num_routable = 0
    cdef double total = 0.0, used
    for i in range(view.num_replicas):
        if not view.accounts[i].is_routable:
            continue
        num_routable += 1
        used = <double>view.states[i].used_blocks / view.states[i].num_blocks if view.states[i].num_blocks else 0.0
        total += max(view.states[i].waiting / waiting, used / kv_usage)
    return total / num_routable if num_routable else 1.0
