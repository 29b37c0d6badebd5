"""The replicas of a cluster on one clock, and the events that concern them."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport EventQueue
from simulator.core.heap cimport Keyed
from simulator.core.row_list cimport RowList
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.journey cimport Journey
from simulator.domain.request cimport Demand, Request
from simulator.engine.fleet.laggards cimport Laggards
from simulator.engine.fleet.lookahead cimport Lookahead
from simulator.engine.replica.delivery cimport Delivery
from simulator.engine.replica.departures cimport Departures
from simulator.engine.output.legs cimport LegBook
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Sequence


cdef enum:
    TICK = -2                   # replica of a repeating event, which counts only while there is work


cdef struct ReplicaEntry:       # where the cluster finds a replica; 64 bytes
    void* replica               # the Replica, borrowed: to be called without the GIL
    void* view                  # the LiveView that shows it, borrowed
    int32_t index               # the replica's number in that view
    int32_t gateway            # index of the gateway in front of it
    double queue_base_ns        # from dispatch to waiting queue: [latency.host] queue_base_us
    double queue_token_ns       # the same, per prompt token
    int64_t resolution_ns       # of its latency model; the delay is truncated to whole multiples, 0: rounded
    const Sequence* due         # the decoding sequence that completes first, when the replica was last up to date
    const Keyed* finish         # the finish heap with `due` on top


cdef struct FurtherEntry:       # of a replica in a further view: another gateway's, or that of the reports of its ranks
    void* view                  # LiveView, borrowed; NULL: the replica is in one view
    FurtherEntry* next          # in a further view; NULL: there is none
    int32_t index
    int32_t gateway             # in the first SecondSeat: gateway of requests that are no prefill legs


@cython.final
cdef class Fleet:
    cdef readonly list replicas
    cdef readonly int32_t num_replicas
    cdef ReplicaEntry* entries          # [replica]
    cdef FurtherEntry* further_entries  # [replica]; NULL: all are in one view
    cdef readonly Recorder recorder
    cdef readonly Departures departures
    cdef readonly EventQueue events
    cdef WakeHeap wakes                 # when each replica must act, or may let a request go; kept only if coupled
    cdef bint coupled  # departures are reported at once, as a policy reads replicas or acts on requests
    cdef Lookahead* lookaheads          # [replica] if coupled and replicas act only before a departure or a look;
                                        # NULL: replicas are kept up to date with every event
    cdef Laggards _laggards             # owner of `lookaheads`; None: NULL
    cdef readonly int64_t num_clients   # rows that arrive; those behind are prefill legs of requests, row by row
    cdef Request* requests              # borrowed from the workload, like demands
    cdef const Demand* demands
    cdef Journey* journeys              # [row]; NULL: requests reach replicas without a delay to record
    cdef readonly LegBook legs          # None: a request stays at one replica
    cdef Delivery gate                  # through it requests leave that are at no replica
    cdef bint _in_halves                # all iterations that end at one instant end before the next ones begin, since
                                        # an end may cause arrivals
    cdef RowList _between               # replicas between two iterations: the last has ended, the next has not begun
    cdef int64_t _between_ns            # when that iteration ended
    cdef int64_t next_arrival_ns        # of the next request to arrive; NEVER_NS: no more
    cdef int64_t num_ticks              # repeating events in the queue, which count only while there is work
    cdef bint has_deadlines             # some request has one
    cdef readonly list front_ends       # FrontEnd
    cdef void** _front_of               # [replica] the FrontEnd before it, borrowed; NULL: none has one
    cdef int32_t* _visits               # [row] front ends entered so far; NULL: no replica has one
    cdef int64_t* shifts_ns             # [replica] see HostParameters.shift_ns
    cdef bint shifts_differ             # some request has a deadline, and `shifts_ns` differ
    cdef public object mover            # Migration, for operations that empty a replica; None: requests are never moved
    cdef readonly list operations       # Operation, in order; each is notified when others act on replicas
    cdef readonly object workload       # from which requests and demands are borrowed
    cdef readonly object shared         # build.Shared, owner of the objects shared by the cluster
    cdef int64_t _num_rows              # all of the workload
    cdef list _views                    # LiveView, to which the entries point

    # Return the gateway with this request, which is at a replica, in its account.
    cdef inline int32_t gateway_of(self, int32_t row) noexcept nogil:
        cdef int32_t index = self.requests[row].replica
        if self.further_entries == NULL or self.further_entries[index].view == NULL or row >= self.num_clients:
            return self.entries[index].gateway
        return self.further_entries[index].gateway

    # Return whether nothing else happens at this instant, so that a step without delay may follow at once.
    cdef inline bint is_alone(self, int64_t now_ns) noexcept nogil:
        return self.next_arrival_ns > now_ns and self.events.next_time() > now_ns

    # Return whether only repeating events are left.
    cdef bint is_quiet(self) noexcept nogil

    # Queue a repeating event; it is dropped where the fleet is quiet.
    cdef int push_tick(self, int64_t time_ns, int kind, int64_t payload) except -1 nogil

    # Send a request to a replica: it reaches the waiting queue now, or after its front end and the host's delay.
    cdef int send(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _delay(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil

    # Handle FRONT_END: finished requests go on. empty_front_end: after a replica's death its requests pass at once.
    cdef int leave_front_end(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int empty_front_end(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef int _order(self, int32_t index, int order, int64_t now_ns) noexcept nogil

    # Return when a request that gives up at `deadline_ns` must have left a replica: engine time, which is earlier.
    cdef int64_t due_ns(self, int32_t row, int32_t index) noexcept nogil

    # Where `shifts_ns` differ: note when a request that is with another replica now must have left it.
    cdef int watch_deadline(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil

    # A request that is in no replica leaves for good, with this RequestStatus and Cause.
    cdef int refuse(self, int32_t row, int8_t status, int8_t cause, int64_t now_ns) except -1 nogil

    # A request leaves its replica for good before it is complete, with this RequestStatus.
    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil

    # A replica was changed from outside: note when it acts next, and that views must read it again.
    cdef void touched(self, int32_t index) noexcept nogil
    cdef void _free_entries(self) noexcept

    # Prefetch the cache lines of a replica that acts now, and of `next_index`, which acts soon.
    cdef void _warm(self, int32_t index, int32_t next_index) noexcept nogil

    # Let replicas act, in order of time, on all that is due before `until_ns`, until one lets requests go: return the
    # instant of that departure, or `until_ns`.
    cdef int64_t catch_up(self, int64_t until_ns, int64_t most_steps) except -1 nogil

    # As catch_up, with ends and beginnings of iterations apart: it may return between the two if requests leave.
    cdef int64_t _catch_up_in_halves(self, int64_t until_ns, int64_t most_steps) except -1 nogil
    cdef int _end_halves(self) except -1 nogil
    cdef int _add_between(self, int32_t index) except -1 nogil
    cdef int _begin_halves(self) except -1 nogil

    # Let each replica act on all that is due before `until_ns`, without a stop at departures.
    cdef int advance_all(self, int64_t until_ns) except -1 nogil

    # As advance_all, for the replicas from `first` on, before `last`.
    cdef int advance_some(self, int32_t first, int32_t last, int64_t until_ns) except -1 nogil
