"""A request's path through the cluster, apart from the work of its replica."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef enum Cause:                # why a request was rejected, dropped or timed out; the codes of results.h5
    NO_CAUSE = 0                # it was not, or its replica's engine did it
    ADMISSION = 1               # the admission policy refused it
    QUEUE_FULL = 2              # no room in the gateway queue
    SHED = 3                    # it was shed from the gateway queue for a more urgent one
    EXPIRED = 4                 # it waited too long in the gateway queue
    RECALLED = 5                # it was taken off its replica for a more urgent one
    NO_REPLICA = 6              # no replica could take it
    LOST = 7                    # its replica failed, and it was not sent elsewhere
    KV_LOAD_FAILED = 8          # the KV that a prefill replica had computed for it could not be read


cdef struct Journey:
    int64_t admitted_ns         # the admission policy let it in; -1: never (so for all times below)
    int64_t dispatched_ns       # it was sent to a replica, the last time
    int64_t downtime_ns         # sum of times without progress, for failures and migrations
    int32_t retries             # times that it was sent elsewhere since its replica failed
    int32_t migrations          # times that it moved to another replica which had not failed
    int8_t cause                # Cause
    int8_t spare[7]


cdef enum LegEnd:               # how a leg ended; the codes of results.h5
    LEG_UNDERWAY = 0            # it did not
    LEG_COMPLETED = 1
    LEG_HANDED_OVER = 2         # another replica does the rest of its work
    LEG_MOVED = 3               # it went to another replica in the middle of its work
    LEG_RETRIED = 4             # its replica failed, and it returned to the gateway
    LEG_ENDED = 5               # the request left for good without being complete; its status says why


cdef enum LegRole:              # part of a request that a replica does; the codes of Leg.role
    ROLE_WHOLE = 0              # all of it
    ROLE_PREFILL = 1            # its prompt; another replica goes on from there
    ROLE_DECODE = 2             # the output after the prompt, which another replica has computed


cdef struct Leg:                # /legs in results.h5: one stay of a request at a replica
    int64_t sent_ns             # when it was sent there, or its move there began; -1: never (so for all times below)
    int64_t enqueued_ns         # when it, or its KV, got there
    int64_t scheduled_ns        # when it was first scheduled there, or went on there
    int64_t ended_ns            # when it left
    int32_t request             # its row in /requests
    int32_t replica
    int32_t cached_tokens       # of its text, found in the KV cache when it was first scheduled there
    int32_t external_tokens     # of its text, loaded from elsewhere
    int8_t role                 # LegRole
    int8_t how                  # LegEnd
    int8_t spare[6]
