"""A request's way through the cluster, beside what its replica does with it."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef enum Cause:                # why a request was rejected, dropped or timed out; the codes of results.h5
    NO_CAUSE = 0                # it was not, or its replica's engine did it
    ADMISSION = 1               # the admission policy said no
    QUEUE_FULL = 2              # no room in the gateway queue
    SHED = 3                    # it had to leave the gateway queue for a more urgent one
    EXPIRED = 4                 # it waited too long in the gateway queue
    RECALLED = 5                # it was taken off its replica for a more urgent one
    NO_REPLICA = 6              # no replica could take it
    LOST = 7                    # its replica failed, and it was not sent elsewhere


cdef struct Journey:
    int64_t admitted_ns         # the admission policy let it in; -1: never (so for all times below)
    int64_t dispatched_ns       # it was sent to a replica, the last time
    int64_t downtime_ns         # sum of times without progress, for failures and migrations
    int32_t retries             # times that it was sent elsewhere since its replica failed
    int32_t migrations          # times that it moved to another replica which had not failed
    int8_t cause                # Cause
    int8_t spare[7]
