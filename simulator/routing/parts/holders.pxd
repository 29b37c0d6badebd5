"""Replicas that have blocks of a prompt: scans of counts, [num_replicas], without branches."""
from libc.stdint cimport int32_t

from simulator.core.draws cimport Draws


cdef inline int32_t most(const int32_t* counts, int32_t num_replicas) noexcept nogil:
    """The largest count; 0 if none is above."""
    cdef int32_t best = 0, i
    for i in range(num_replicas):
        best = counts[i] if counts[i] > best else best
    return best


cdef inline int32_t pick_with(int32_t count, const int32_t* counts, int32_t num_replicas, Draws draws) noexcept nogil:
    """A replica with this count, drawn if several have it; -1: none has it."""
    cdef int32_t ties = 0, i
    for i in range(num_replicas):
        ties += counts[i] == count
    if ties == 0:
        return -1
    ties = draws.below(ties) if ties > 1 else 0
    for i in range(num_replicas):
        if counts[i] == count:
            if ties == 0:
                return i
            ties -= 1
    return -1


cdef inline int32_t holders(const int32_t* counts, int32_t num_replicas, int32_t* found) noexcept nogil:
    """Write the replicas with a count above 0 to `found`, in order, and return their number."""
    cdef int32_t size = 0, i = 0, k, end, any_count
    while i < num_replicas:
        end = min(i + 16, num_replicas)
        any_count = 0
        for k in range(i, end):
            any_count |= counts[k]
        for k in range(i, end if any_count else i):
            found[size] = k
            size += counts[k] > 0
        i = end
    return size
