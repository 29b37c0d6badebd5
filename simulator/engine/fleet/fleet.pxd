"""The replicas of a cluster on one clock, and the events that concern them."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport EventQueue
from simulator.core.finish_heap cimport Finish
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
    TICK = -2                   # replica of an event that repeats: it counts only while there is work


cdef struct Seat:               # where the cluster finds a replica; 64 bytes
    void* replica               # the Replica, borrowed: to be called without the GIL
    void* view                  # the LiveView that shows it, borrowed
    int32_t index               # its number there
    int32_t gateway            # index of the gateway in front of it
    double queue_base_ns        # from dispatch to waiting queue: [latency.host] queue_base_us
    double queue_token_ns       # the same, per prompt token
    int64_t resolution_ns       # of its latency model; the delay is truncated to whole multiples, 0: rounded
    const Sequence* due         # of the member that will be complete first, when the replica was last up to date
    const Finish* finish        # the heap it is on top of


cdef struct SecondSeat:         # of a replica in a further view: of another gateway, or of what its ranks report
    void* view                  # LiveView, borrowed; NULL: the replica has one seat
    SecondSeat* next            # in one view more; NULL: there is none
    int32_t index
    int32_t gateway             # in the first of them: of requests that are no prefill legs


@cython.final
cdef class Fleet:
    cdef readonly list replicas
    cdef readonly int32_t num_replicas
    cdef Seat* seats                    # [replica]
    cdef SecondSeat* second_seats       # [replica]; NULL: all have one seat
    cdef readonly Recorder recorder
    cdef readonly Departures departures
    cdef readonly EventQueue events
    cdef WakeHeap wakes                 # when each replica must act, or may let a request go; kept only if coupled
    cdef bint coupled                   # departures are told at once, since somebody looks at replicas or acts on them
    cdef Lookahead* lookaheads          # [replica] coupled, and they act only when a request may leave, or somebody
                                        # looks; NULL: they are kept up to date with every event
    cdef Laggards _laggards             # has them; None: NULL
    cdef readonly int64_t num_clients   # rows that come; those behind are prefill legs of requests, row by row
    cdef Request* requests              # borrowed from the workload, like demands
    cdef const Demand* demands
    cdef Journey* journeys              # [row]; NULL: the way to the replicas is too short to tell
    cdef readonly LegBook legs          # None: a request stays at one replica
    cdef Delivery gate                  # through it requests leave that are in no replica
    cdef bint _in_halves                # iterations that end at one instant all do before the next ones begin, since
                                        # requests may come because of them
    cdef RowList _between               # replicas of which an iteration has ended, and the next has not begun
    cdef int64_t _between_ns            # when it ended
    cdef int64_t next_arrival_ns        # of the next request to come; NEVER_NS: no more
    cdef int64_t num_ticks              # events in the queue that repeat for ever, and count only while there is work
    cdef bint has_deadlines             # some request has one
    cdef readonly list front_ends       # FrontEnd
    cdef void** _front_of               # [replica] the FrontEnd before it, borrowed; NULL: none has one
    cdef int32_t* _visits               # [row] of front ends so far; NULL likewise
    cdef int64_t* shifts_ns             # [replica] see HostParameters.shift_ns
    cdef bint shifts_differ             # some request has a deadline, and these are not all the same
    cdef public object mover            # Migration, for whoever wants to empty a replica; None: nobody moves requests
    cdef public object hand_over        # HandOver, for what takes requests off replicas; None: nothing is handed over
    cdef readonly object workload       # from which requests and demands are borrowed
    cdef readonly object shared         # build.Shared, from which the rest is
    cdef int64_t _num_rows              # all of the workload
    cdef list _views                    # LiveView, to which the seats point

    # The gateway that has a request in its account, which is at a replica.
    cdef inline int32_t gateway_of(self, int32_t row) noexcept nogil:
        cdef int32_t index = self.requests[row].replica
        if self.second_seats == NULL or self.second_seats[index].view == NULL or row >= self.num_clients:
            return self.seats[index].gateway
        return self.second_seats[index].gateway

    # Nothing else happens at this instant, so that a step without delay may follow at once.
    cdef inline bint is_alone(self, int64_t now_ns) noexcept nogil:
        return self.next_arrival_ns > now_ns and self.events.next_time() > now_ns

    # Nothing will ever happen again but ticks.
    cdef bint is_quiet(self) noexcept nogil

    # An event that repeats: it is dropped where the fleet is quiet.
    cdef int push_tick(self, int64_t time_ns, int kind, int64_t payload) except -1 nogil

    # A request goes to a replica: it reaches its waiting queue now, or once its front end is through with it and after
    # the host's delay.
    cdef int send(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _delay(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil

    # An event FRONT_END: who is done goes on. And a replica has died: who is on the way through its front end is there.
    cdef int leave_front_end(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int empty_front_end(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef int _order(self, int32_t index, int order, int64_t now_ns) noexcept nogil

    # When a request that gives up at `deadline_ns` must have left a replica: engine time, which is earlier.
    cdef int64_t due_ns(self, int32_t row, int32_t index) noexcept nogil

    # Where replicas differ in that: a request that is with another replica now must have left it in time.
    cdef int watch_deadline(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil

    # A request that is in no replica leaves for good, with this RequestStatus and Cause.
    cdef int refuse(self, int32_t row, int8_t status, int8_t cause, int64_t now_ns) except -1 nogil

    # A request leaves its replica for good before it is complete, with this RequestStatus.
    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil

    # A replica was changed from outside: note when it acts next, and that its state is another.
    cdef void touched(self, int32_t index) noexcept nogil
    cdef void _free_seats(self) noexcept

    # A replica acts now, and another soon: ask for what they will touch first.
    cdef void _warm(self, int32_t index, int32_t next_index) noexcept nogil

    # Let the replicas act that do before `until_ns`, in order of time, until one lets requests go: the instant at which
    # it did, or `until_ns`.
    cdef int64_t catch_up(self, int64_t until_ns, int64_t most_steps) except -1 nogil

    # The same in halves: it returns between the two where one lets requests go.
    cdef int64_t _catch_up_in_halves(self, int64_t until_ns, int64_t most_steps) except -1 nogil
    cdef int _end_halves(self) except -1 nogil
    cdef int _add_between(self, int32_t index) except -1 nogil
    cdef int _begin_halves(self) except -1 nogil

    # Let each replica act as far as `until_ns`, whatever it lets go.
    cdef int advance_all(self, int64_t until_ns) except -1 nogil

    # The same for those from `first` on, before `last`.
    cdef int advance_some(self, int32_t first, int32_t last, int64_t until_ns) except -1 nogil
