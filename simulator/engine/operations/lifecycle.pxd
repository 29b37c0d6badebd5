"""The lifecycle of the replicas of a cluster, under failures and autoscaling."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.replica.replica cimport Replica
from simulator.latency.base cimport LatencyModel


cdef enum ReplicaStage:         # the codes of /lifecycle; the names are records.STAGE_NAMES
    OFF = 0                     # there is no replica
    PROVISIONING = 1            # its machine is being provided
    LOADING = 2                 # it loads the model
    WARMING = 3                 # it warms up
    UP = 4                      # it serves
    DRAINING = 5                # it finishes its requests, and gets no more
    SLOW = 6                    # it serves, slowed by a failure; from here on in results only: no Place.stage
    CUT_OFF = 7                 # it does not act, without its link
    DOWN = 8                    # it has stopped


cdef enum LifecycleCause:       # the names are records.LIFECYCLE_CAUSES
    START = 0                   # the state at time 0
    SCALING = 1                 # the autoscaler's decision
    FAILURE = 2                 # a failure begins
    DETECTION = 3               # the gateway detects that it does not answer, or is slow
    RECOVERY = 4                # a failure ends
    REOPENING = 5               # the gateway sends requests there again
    COOLDOWN = 6                # after failures of requests the gateway sends none there for a while
    BREAKER = 7                 # the same, by a circuit breaker
    UNBARRED = 8                # that time is over
    RESTART = 9                 # a rolling restart


@cython.final
cdef class Place:               # place for a replica
    cdef readonly Replica replica
    cdef readonly Gateway gateway       # in front of it
    cdef readonly int32_t view_index    # its number in the gateway's view
    cdef readonly Gateway second        # the decode gateway of a replica for both legs; None: it has one gateway
    cdef readonly int32_t second_view_index
    cdef readonly int32_t pool
    cdef readonly int32_t node
    cdef readonly int32_t unit
    cdef public int stage               # ReplicaStage
    cdef public bint is_marked_down         # the gateway has detected that it does not answer
    cdef public int num_slow            # number of failures that make it slow, and for which the gateway avoids it
    cdef public int num_barred          # cooldowns and breakers for which the gateway sends it no requests
    cdef public list faults             # domain.failures.Failure in effect there
    cdef public object outage           # its last outages.Outage; None: it had none
    cdef readonly LatencyModel latency  # its own, of a healthy replica
    cdef readonly int32_t number        # of its [topology] replica: shared by all its data-parallel ranks
    cdef readonly list ranks            # [rank] Place of each rank of its replica; alone without data parallelism
    cdef list _in_step                  # places in lock step with it, itself among them
    cdef list _behind_one_front         # places driven by its front end process, itself among them


@cython.final
cdef class Lifecycle:
    cdef readonly list places           # [replica] Place
    cdef readonly int32_t num_draining  # replicas, with all their ranks
    cdef Fleet _fleet
    cdef list _rows                     # of records.LIFECYCLE, as tuples
    cdef dict _drained          # index of a replica's first place -> action once it has drained, in place of OFF

    # A place has fewer requests: note if its replica is drained now.
    cdef int look_at(self, int32_t replica, int64_t now_ns) except -1
