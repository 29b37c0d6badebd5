"""Base class of saturation detectors: the saturation of the replicas behind a gate."""
from libc.stdint cimport int32_t, int64_t

from simulator.signals.load cimport kv_usage
from simulator.signals.view cimport View


cdef class SaturationDetector:
    cdef readonly View view             # the replicas behind the gate
    cdef readonly bint reads_state      # it looks at their reports; set in __init__

    # 0: idle; 1 and above: requests should be held back. Finite.
    cdef double saturation(self, int64_t now_ns) except -1.0 nogil


# The mean over the replicas that can be routed to of the larger of two ratios: waiting requests to `most_waiting`, and
# the share of KV blocks in use to `most_usage`. No such replica: 1. Call `view.look` first.
# A replica with a report older than `staleness_ns` counts as 1; 0: reports of any age count.
cdef inline double mean_utilisation(View view, double most_waiting, double most_usage, int64_t staleness_ns,
                                    int64_t now_ns) noexcept nogil:
    cdef int32_t i, num_routable = 0
    cdef double total = 0.0
    for i in range(view.num_replicas):
        if not view.accounts[i].is_routable:
            continue
        num_routable += 1
        if staleness_ns > 0 and now_ns - view.states[i].time_ns > staleness_ns:
            total += 1.0
            continue
        total += max(view.states[i].waiting / most_waiting, kv_usage(view, i) / most_usage)
    return total / num_routable if num_routable else 1.0
