"""What befalls a replica from outside: it stands still, goes on, gives up its requests.

All of these act on a replica that has been brought up to `now_ns`; whoever calls them tells the fleet that it is
`touched`.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.replica.replica cimport Replica
from simulator.core.row_list cimport RowList


# What comes after the iteration in progress is not planned yet.
cdef void cut(Replica replica, int64_t now_ns) noexcept nogil

# It stands still: an iteration that has not ended before `now_ns` does not end, and requests that come only wait.
cdef int halt(Replica replica, int64_t now_ns) except -1 nogil

# It goes on where it stood still at `since_ns`: the iterations in flight take longer by the time between.
cdef int resume(Replica replica, int64_t since_ns, int64_t now_ns) except -1 nogil

# Take all requests off a replica that stands still and add them to `rows`: those that run, in order of admission, then
# those that wait, in order of the queue. They keep the tokens they got, WAITING in no queue; what they held is free.
# The iterations in flight come to nothing.
cdef int evacuate(Replica replica, RowList* rows) except -1 nogil
