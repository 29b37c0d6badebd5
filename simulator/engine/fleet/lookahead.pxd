"""How long a replica can be left alone when all that matters is who leaves it, and what was sent to it meanwhile.

A router that only counts requests in flight does not see iterations, prompts or blocks. A replica behind such a router
need not act when its wake time comes: it is enough that it acts before a request can leave it. Whoever is sent to it
until then is posted here. The instant is a lower bound, so that nobody is heard of too late; the closer, the fewer
turns a replica takes. In the terms of parallel simulation it is the replica's lookahead.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler

cdef enum:
    MOST_POSTED = 4             # what comes beyond is taken in at once


cdef enum Order:                # of a request that comes, and what else happens to its replica at that instant
    AHEAD = 0                   # the request comes before
    BEHIND = 1                  # it comes after what was due; who was sent there at that instant, too, waits with it
    STARTED = 2                 # it comes after those, too


cdef struct Posted:             # a request on its way into the waiting queue
    int64_t time_ns             # when it reaches it
    int32_t row
    int32_t order               # Order


cdef struct Lookahead:           # of one replica
    int64_t reached_ns          # up to which it was brought, exclusive
    int64_t least_ns            # no iteration of it is shorter
    int64_t spare_tokens        # room in its KV cache once all that it has, and was posted, is computed; < 0: none
    int64_t room_tokens         # room to allow for besides its text for each request: blocks not full, and growth
    int64_t longest_tokens      # a text up to this is never refused
    int64_t preemptions         # of its scheduler, up to now
    int64_t last_ns             # when a request was sent there last
    int32_t last_turn           # turns that replicas had taken at that instant
    const int32_t* targets      # [row] tokens after which generation stops, see Delivery
    int32_t fewest_tokens       # that any request still generates that does not decode yet; INT32_MAX: there is none
    int32_t num_posted
    Posted posted[MOST_POSTED]


# Is enough known of its policies to foresee who leaves?
cdef bint can_lag(Replica replica) noexcept nogil

# A replica on which nothing has been put yet.
cdef int prepare(Lookahead* lookahead, Replica replica) except -1

# Leave a request with the replica, which reaches its waiting queue at `now_ns`. `departs_ns`, an instant before which
# nobody leaves, may move forward. 0: the caller has to take it in at once, and to ask for the next departure.
cdef bint post(Lookahead* lookahead, int32_t row, int64_t text_tokens, int64_t now_ns, int order,
               int64_t* departs_ns) noexcept nogil

# A request reaches the waiting queue of a replica in this Order, whether replicas lag or not.
cdef int take_in(Replica replica, int32_t row, int64_t now_ns, int order) except -1 nogil

# Let the replica take in what was posted, and do what is due before `until_ns`; see Replica.advance.
cdef int bring(Lookahead* lookahead, Replica replica, int64_t until_ns, int64_t horizon_ns) except -1 nogil

# An instant before which the replica, brought up to date, lets nobody go, whatever is sent to it. NEVER_NS: it is idle.
# `scheduler`: the replica's.
cdef int64_t next_departure_ns(Lookahead* lookahead, Replica replica, Scheduler scheduler) noexcept nogil
