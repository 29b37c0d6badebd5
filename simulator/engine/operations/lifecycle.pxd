"""The life of the replicas of a cluster, whoever decides on it."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.replica.replica cimport Replica
from simulator.latency.base cimport LatencyModel


cdef enum ReplicaStage:         # the codes of /lifecycle; the names are records.STAGE_NAMES
    OFF = 0                     # there is none
    PROVISIONING = 1            # its machine is on the way
    LOADING = 2                 # it loads the model
    WARMING = 3                 # it warms up
    UP = 4                      # it serves
    DRAINING = 5                # it finishes what it has
    SLOW = 6                    # it serves, slower than it should; from here on shown only, a stage is none of these
    CUT_OFF = 7                 # it stands still without its link
    DOWN = 8                    # it has stopped


cdef enum LifecycleCause:       # the names are records.LIFECYCLE_CAUSES
    START = 0                   # so it was at time 0
    SCALING = 1                 # the autoscaler wanted it
    FAILURE = 2                 # something failed
    DETECTION = 3               # the gateway knows that it does not answer, or is slow
    RECOVERY = 4                # something is repaired
    REOPENING = 5               # the gateway sends requests there again


@cython.final
cdef class Place:               # of a replica
    cdef readonly Replica replica
    cdef readonly Gateway gateway       # in front of it
    cdef readonly int32_t seat          # its number in the gateway's view
    cdef readonly Gateway second        # the other one, where it does prompts and what follows them; None: it has one
    cdef readonly int32_t second_seat
    cdef readonly int32_t pool
    cdef readonly int32_t node
    cdef readonly int32_t unit
    cdef public int stage               # ReplicaStage
    cdef public bint is_marked_down         # the gateway knows that it does not answer
    cdef public int num_slow            # failures that make it slow, and for which the gateway avoids it
    cdef public list faults             # domain.failures.Failure that it suffers from
    cdef public object outage           # its last outages.Outage; None: it had none
    cdef readonly LatencyModel latency  # its own, of a healthy replica
    cdef readonly int32_t number        # of what [topology] calls a replica: all its data-parallel ranks have it
    cdef readonly list ranks            # [rank] Place of all of them; alone without data parallelism
    cdef list _in_step                  # those in lock step with it, itself among them
    cdef list _behind_one_front         # those that one front end process drives, itself among them


@cython.final
cdef class Lifecycle:
    cdef readonly list places           # [replica] Place
    cdef readonly int32_t num_draining  # replicas, with all their ranks
    cdef Fleet _fleet
    cdef list _rows                     # of records.LIFECYCLE, as tuples

    # A place has fewer requests: is its replica drained?
    cdef int look_at(self, int32_t replica, int64_t now_ns) except -1
