"""Requests leave a replica or come to it from another, in the middle of what it does.

All of these act on a replica that has been brought up to `now_ns`; whoever calls them tells the fleet that it is
`touched`.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.replica.replica cimport Replica


# Of the run that was planned only the iteration in progress is left, so that KV cache and sequences are as of `now_ns`.
cdef int settle_run(Replica replica, int64_t now_ns) except -1 nogil

# What was changed may let a replica go on that has nothing in flight.
cdef void rouse(Replica replica, int64_t now_ns) noexcept nogil

# Something may be taken off a replica now, or once the oldest iteration has ended: when that is; NEVER_NS: not until it
# stands still no more.
cdef int64_t next_end_ns(Replica replica, int64_t now_ns) noexcept nogil

# Take a sequence off the running list of a replica whose last iteration has just ended; it keeps its blocks.
cdef int take_off(Replica replica, int32_t slot) except -1 nogil

# Tokens of a sequence in KV, not counting those that are being computed.
cdef int64_t settled_tokens(Replica replica, int32_t slot) noexcept nogil

# A request that has been elsewhere, without its KV, enters the waiting queue: in front if it had run.
cdef int enqueue_again(Replica replica, int32_t row, int64_t now_ns) except -1 nogil
