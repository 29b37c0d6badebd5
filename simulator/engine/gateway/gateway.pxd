"""The path of a request to the replicas of its model: admission, gateway queue, router."""
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
from simulator.routing.instances.base cimport Assignment
from simulator.routing.ranks.base cimport RankRouter


cdef struct QueueOfInstance:
    void* queue                         # GatewayQueue, borrowed
    int64_t owed                        # attempts to pass on a queued request, owed for requests that left
    bint ticks                          # a tick is under way


@cython.final
cdef class Gateway:
    cdef readonly int32_t index
    cdef void* _first                   # Gateway where its requests arrive and are admitted, borrowed: itself, unless
                                        # prefill and decode pools are separate and this gateway serves decode legs
    cdef PairingBase _pairing           # decides whether a request has two legs, and sends it; None: one leg
    cdef Stage _front_stage             # gets admitted requests first; None: they come to queue, stage or router
    cdef Stage _stage                   # holds requests back behind the queue; None: they are routed at once
    cdef int32_t* _places               # [replica of the cluster] its number in the view; -1: not in it
    cdef readonly Admission admission   # None: all requests are admitted
    cdef readonly GatewayQueue queue    # of the first instance; None: requests are routed as soon as they are admitted
    cdef readonly list queues           # GatewayQueue of each instance of the gateway
    cdef QueueOfInstance* _queues       # [instance]
    cdef int32_t _num_queues
    cdef Assignment _assignment         # of requests to instances; None: there is one instance
    cdef readonly Router router
    cdef readonly LiveView view
    cdef readonly bint is_blind         # nothing here reads replicas or takes time: arrivals may be routed ahead
    cdef readonly bint counts_promised  # its router counts a decode leg from its choice on, while its prompt is
                                        # computed elsewhere
    cdef RankRouter _front_ends         # `router`, where the front ends of replicas choose ranks; else None
    cdef int32_t* _promised             # [replica] requests of the account that have not been sent there yet
    cdef readonly int64_t shift_ns      # the least HostParameters.shift_ns of its replicas
    cdef bint _is_direct                # there is nothing but the router, which takes no time
    cdef bint _foretells                # some request has a predicted output length
    cdef Fleet _fleet
    cdef Tracer _tracer                 # None: decisions are not recorded
    cdef int64_t _admission_ns          # duration of an admission decision
    cdef readonly int64_t routing_ns    # duration of a routing decision
    cdef int64_t _retry_ns              # delay before a request is routed again that no replica could take
    cdef int64_t _patience_ns           # how long after admission it may be routed again; 0: refused at once

    # A request arrives. It may be passed on later, by events of the fleet.
    cdef int arrive(self, int32_t row, int64_t now_ns) except -1 nogil

    # Where `is_blind`: the replica for a request, numbered as in the cluster; -1: rejected, or no replica can take it.
    cdef int32_t place(self, int32_t row, int64_t now_ns) except -2 nogil

    # Handlers of a request's events.
    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int recall(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int expire(self, int32_t instance, int64_t now_ns) except -1 nogil
    cdef int give_up(self, int32_t row, int64_t now_ns) except -1 nogil     # its client does, before it has a replica
    cdef int tick(self, int32_t instance, int64_t now_ns) except -1 nogil

    # Queue or route a request that was admitted earlier: again, or behind the front stage.
    cdef int return_to_gateway(self, int32_t row, int64_t now_ns) except -1 nogil

    # Route an admitted request that the stage held back.
    cdef int go_on(self, int32_t row, int64_t now_ns) except -1 nogil

    # choose: return the replica for a request, as numbered in the view; -1: none can take it now. Then call one of:
    # dispatch: send it there for the work of its LegRole; turn_away: route it again later, or refuse it;
    cdef int32_t choose(self, int32_t row, int64_t now_ns) except -2 nogil
    cdef int dispatch(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil

    # announce: account for a request that Fleet.send sends later; put: it enters the waiting queue at once.
    cdef int announce(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil
    cdef int put(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil

    # Where `counts_promised`: promise: take a decode leg into the account of the chosen replica, though its prompt is
    # not computed yet. redeem: take it out again, before `dispatch`, or as it will not come.
    cdef int promise(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int redeem(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil

    # Requests that were sent to a replica and have not left.
    cdef inline int32_t num_at(self, int32_t replica) noexcept nogil:
        return self.view.accounts[replica].in_flight - self._promised[replica]

    cdef int turn_away(self, int32_t row, int64_t now_ns) except -1 nogil

    # left: a request has left a replica for good, or to go to another: take it out of the account. leg_left: so has a
    # prefill leg, with a LegEnd. gone: a request ended that is at no replica, but was sent to some.
    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int leg_left(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
    cdef int gone(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request with an ended prefill leg will be sent to a replica again.
    cdef int returned(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request moves from its replica to another, numbered as in the cluster, with its generated tokens; the move began
    # at `since_ns`.
    cdef int moved(self, int32_t row, int32_t replica, int64_t since_ns, int64_t now_ns) except -1 nogil

    # ended: a request has left the cluster, from a replica. settle: after all departures of an instant, pass others on.
    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
    cdef int settle(self, int64_t now_ns) except -1 nogil

    # open: a replica becomes routable (False: it was before); after all that open at this instant, `settle` passes
    # waiting requests on. close: it is routable no more.
    cdef bint open(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int close(self, int32_t replica, int64_t now_ns) except -1 nogil

    cdef int _settle_account(self, int32_t row, int32_t client, int64_t now_ns) except -1 nogil
    cdef int _let_in(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _pass_on(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _offer(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int32_t _instance_of(self, int32_t row) noexcept nogil
    cdef int _attempt(self, int32_t instance, int64_t now_ns) except -1 nogil
    cdef int _keep_ticking(self, int32_t instance, int64_t now_ns) except -1 nogil
    cdef int _expire_at(self, int32_t instance, int64_t instant_ns) except -1 nogil
    cdef int _change_limit(self, int64_t now_ns) except -1 nogil
