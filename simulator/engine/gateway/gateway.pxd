"""The way of a request to the replicas of its model: admission, gateway queue, router."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.admission.base cimport Admission
from simulator.admission.gateway_queue cimport GatewayQueue
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.fleet.live_view cimport LiveView
from simulator.engine.gateway.pairing_base cimport PairingBase
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.gateway.tracer_base cimport Tracer
from simulator.routing.base cimport Router


@cython.final
cdef class Gateway:
    cdef readonly int32_t index
    cdef void* _first                   # Gateway where its requests came, which let them in, borrowed: itself, unless
                                        # prefill and decode are apart and it is the one for what follows the prompt
    cdef PairingBase _pairing           # decides whether they are, and sends requests; None: they are not
    cdef Stage _stage                   # holds requests back once they are let in; None: they are routed at once
    cdef int32_t* _places               # [replica of the cluster] its number in the view; -1: it is not there
    cdef readonly Admission admission   # None: all are let in
    cdef readonly GatewayQueue queue    # None: requests are routed as soon as they are let in
    cdef readonly Router router
    cdef readonly LiveView view
    cdef readonly bint is_blind         # nothing here looks at replicas or takes time: arrivals may be routed ahead
    cdef readonly int64_t shift_ns      # the least of its replicas' HostParameters.shift_ns
    cdef bint _is_direct                # there is nothing but the router, which takes no time
    cdef bint _foretells                # of some request an output length is foretold
    cdef Fleet _fleet
    cdef Tracer _tracer                 # None: nobody wants to know why
    cdef int64_t _admission_ns          # the admission policy takes that long to decide
    cdef readonly int64_t routing_ns    # so does the router
    cdef int64_t _retry_ns              # after which a request that no replica could take is routed again
    cdef int64_t _patience_ns           # how long after its admission it may be; 0: it is refused at once
    cdef int64_t _owed                  # attempts to pass on a request, for those that left
    cdef bint _ticks                    # a tick of the gateway queue is under way

    # A request comes. Its further way may lead through events of the fleet.
    cdef int arrive(self, int32_t row, int64_t now_ns) except -1 nogil

    # Where `is_blind`: the replica for a request, numbered as in the cluster; -1: not let in, or none can take it.
    cdef int32_t place(self, int32_t row, int64_t now_ns) except -2 nogil

    # What the events of a request mean.
    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int recall(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int expire(self, int64_t now_ns) except -1 nogil
    cdef int give_up(self, int32_t row, int64_t now_ns) except -1 nogil     # its client, before it reached a replica
    cdef int tick(self, int64_t now_ns) except -1 nogil

    # A request that was let in earlier is to be sent somewhere again.
    cdef int return_to_gateway(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request that was let in, and held back by the stage, is to be routed.
    cdef int go_on(self, int32_t row, int64_t now_ns) except -1 nogil

    # The replica for a request, as numbered in the view; -1: none can take it now. What follows: it is sent there to do
    # what its LegRole says; or it is tried again later, or refused.
    cdef int32_t choose(self, int32_t row, int64_t now_ns) except -2 nogil
    cdef int dispatch(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil

    # The same for one that somebody else sends on later, by Fleet.send; and for one that enters the queue at once.
    cdef int announce(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil
    cdef int put(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil

    cdef int turn_away(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request has left a replica for good, or is taken off it to go elsewhere: the account no longer has it. A prefill
    # leg has left its replica, in the way of a LegEnd. A request is gone that is at no replica, but was sent to some.
    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int leg_left(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
    cdef int gone(self, int32_t row, int64_t now_ns) except -1 nogil

    # One whose prefill leg is settled will be sent somewhere again.
    cdef int returned(self, int32_t row, int64_t now_ns) except -1 nogil

    # It goes from its replica to another, numbered as in the cluster, with what it has generated; the move began at
    # `since_ns`.
    cdef int moved(self, int32_t row, int32_t replica, int64_t since_ns, int64_t now_ns) except -1 nogil

    # It has left the cluster, from a replica; when all that left at this instant are known, `settle` lets others pass.
    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
    cdef int settle(self, int64_t now_ns) except -1 nogil

    # A replica may be routed to from now on, once others that open with it have, and `settle` lets those pass that wait
    # for it; False: it could be before. It may be no more.
    cdef bint open(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int close(self, int32_t replica, int64_t now_ns) except -1 nogil

    cdef int _settle_account(self, int32_t row, int32_t client, int64_t now_ns) except -1 nogil
    cdef int _pass_on(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _offer(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _attempt(self, int64_t now_ns) except -1 nogil
    cdef int _keep_ticking(self, int64_t now_ns) except -1 nogil
