"""Lookahead of replicas behind routers that count requests only: lower bounds on the next departure.

A router that only counts requests in flight does not see iterations, prompts or blocks. A replica behind such a router
need not act at its wake time: it is enough that it acts before a request can leave it. A request that is sent to it
until then is posted here. The instant is a lower bound, so that no departure is reported too late; the closer it is,
the fewer times a replica acts. In the terms of parallel simulation it is the replica's lookahead.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler

cdef enum:
    MOST_POSTED = 4             # requests posted at most; further ones are taken in at once


cdef enum Order:                # of a request that arrives, relative to its replica's step at that instant
    AHEAD = 0                   # the request arrives before the step
    BEHIND = 1                  # it arrives after the step; others sent there at that instant wait with it
    STARTED = 2                 # it arrives after the step, and the others have started


cdef struct Posted:             # a request on its way into the waiting queue
    int64_t time_ns             # when it reaches the queue
    int32_t row
    int32_t order               # Order


cdef struct Lookahead:           # of one replica
    int64_t reached_ns          # time up to which the replica was advanced, exclusive
    int64_t least_ns            # lower bound on the duration of an iteration
    int64_t spare_tokens        # room in its KV cache once all requests, posted ones too, are computed; < 0: none
    int64_t room_tokens         # allowance per request besides its text: blocks not full, and growth
    int64_t longest_tokens      # a text of at most this length is never refused
    int64_t preemptions         # of its scheduler, up to now
    int64_t last_ns             # when a request was last sent there
    int32_t last_turn           # turns that replicas had taken at that instant
    const int32_t* targets      # [row] tokens after which generation stops, see Delivery
    int32_t fewest_tokens       # least that a request not yet decoding still generates; INT32_MAX: there is none
    int32_t num_posted
    Posted posted[MOST_POSTED]


# Return whether the replica's policies allow departures to be predicted.
cdef bint can_lag(Replica replica) noexcept nogil

# Initialize for an empty replica.
cdef int prepare(Lookahead* lookahead, Replica replica) except -1

# Post a request, which reaches the waiting queue at `now_ns`. `departs_ns`, an instant before which no request leaves,
# may move forward. 0: not posted: the caller must take the request in at once, and compute the next departure.
cdef bint post(Lookahead* lookahead, int32_t row, int64_t text_tokens, int64_t now_ns, int order,
               int64_t* departs_ns) noexcept nogil

# A request reaches the waiting queue of a replica in this Order, whether replicas lag or not.
cdef int take_in(Replica replica, int32_t row, int64_t now_ns, int order) except -1 nogil

# Let the replica take in posted requests, and do all that is due before `until_ns`; see Replica.advance.
cdef int bring(Lookahead* lookahead, Replica replica, int64_t until_ns, int64_t horizon_ns) except -1 nogil

# Return an instant before which the replica, brought up to date, lets no request go, whatever arrives. NEVER_NS: idle.
# `scheduler`: the replica's.
cdef int64_t next_departure_ns(Lookahead* lookahead, Replica replica, Scheduler scheduler) noexcept nogil
