"""The router of a gateway with several instances, each with a router of its own."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.errors cimport broken
from simulator.domain.replica_state cimport ReplicaAccount
from simulator.routing.base cimport Router
from simulator.routing.door cimport ask_any
from simulator.routing.instances.base cimport Assignment
from simulator.routing.instances.view cimport InstanceView

import msgspec
from msgspec.structs import replace


class Instanced(msgspec.Struct, frozen=True):
    """Parameters of `Instances`.

    count : instances. way : of `Assignment`. router, parameters : of each instance, a Router subclass and its
    `Parameters`. pools : name of the pool of each instance, which sees no other replicas; empty: each sees all.
    instances : int32 (requests,), instance of each request; None: `way` says it. groups : number, as in `Assignment`.
    """

    count: int
    way: str
    router: type
    parameters: object
    pools: tuple = ()
    instances: object = None
    groups: int = 1


@cython.final
cdef class Instances(Router):
    """Asks the router of the instance that a request went to.

    Instances see the same reports of replicas. Requests in flight, predicted prefixes, positions in a
    cycle and random numbers are of one instance alone.

    parameters : Instanced. context : RoutingContext; its view has the reports.
    """

    cdef readonly Assignment assignment
    cdef readonly list routers          # Router of each instance
    cdef readonly list views            # InstanceView of each
    cdef void** _routers                # both, borrowed
    cdef void** _views

    @classmethod
    def weighs_promised(cls, parameters, scorers):
        """See Router."""
        return parameters.router.weighs_promised(parameters.parameters, scorers)

    def __init__(self, parameters, context):
        self.assignment = Assignment(parameters.count, parameters.way, context.workload.demands, context.seed,
                                     f"gateways {context.stream}", parameters.groups)
        if parameters.instances is not None:
            self.assignment.instances[:] = parameters.instances
        self.routers, self.views = [], []
        self._routers = <void**>calloc(parameters.count, sizeof(void*))
        self._views = <void**>calloc(parameters.count, sizeof(void*))
        if self._routers == NULL or self._views == NULL:
            raise MemoryError()
        for i in range(parameters.count):
            view = InstanceView(context.view.num_replicas, context.view, self.views)
            if parameters.pools:
                _keep_to(view, [pool.name for pool in context.pools].index(parameters.pools[i]))
            router = parameters.router(parameters.parameters, replace(
                context, view=view, stream=context.stream if i == 0 else f"{context.stream} of gateway {i}"))
            view.pass_on_wants()
            self.routers.append(router)
            self._routers[<int32_t>i], self._views[<int32_t>i] = <void*>(<Router>router), <void*>(<InstanceView>view)
        self.reads_state, self.has_scores = self.routers[0].reads_state, self.routers[0].has_scores

    @property
    def counts_promised(self):
        """See Router."""
        return self.routers[0].counts_promised

    @property
    def turns_away(self):
        """See Router."""
        return self.routers[0].turns_away

    def __dealloc__(self):
        free(self._routers)
        free(self._views)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef void* router = self._routers[self.assignment.of(row)]
        cdef int32_t replica = self.check() if SIM_DEBUG else 0
        replica = ask_any(<Router>router, row, now_ns)
        self.scored = (<Router>router).scored
        return replica

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        return (<Router>self._routers[self.assignment.of(row)]).score(row, now_ns, scores)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t instance = self.assignment.of(row)
        self._account(instance, row, replica, 1, True)
        return (<Router>self._routers[instance]).sent(row, replica, now_ns)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t instance = self.assignment.of(row)
        self._account(instance, row, replica, -1, False)
        return (<Router>self._routers[instance]).left(row, replica, now_ns)

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        cdef int32_t instance = self.assignment.of(row)
        self._account(instance, row, before, -1, False)
        self._account(instance, row, after, 1, False)
        return (<Router>self._routers[instance]).moved(row, before, after, now_ns)

    cdef int opened(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self.assignment.count):
            if (<InstanceView>self._views[i]).refresh(replica):
                (<Router>self._routers[i]).opened(replica, now_ns)
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self.assignment.count):
            if (<InstanceView>self._views[i]).refresh(replica):
                (<Router>self._routers[i]).closed(replica, now_ns)
        return 0

    def follow(self, Instances other):
        """Have the instance that another router has for a request choose here, too."""
        self.assignment = other.assignment

    def bar(self, int32_t instance, int32_t replica, int32_t change, int64_t now_ns):
        """Add `change` to the reasons for which one instance sends a replica no requests."""
        cdef Router router = self.routers[instance]
        cdef InstanceView view = self.views[instance]
        if not view.bar(replica, change):
            return
        if view.accounts[replica].is_routable:
            router.opened(replica, now_ns)
        else:
            router.closed(replica, now_ns)

    cdef int check(self) except -1 nogil:
        """Raise RuntimeError unless the accounts of the instances add up to that of the gateway."""
        cdef int32_t replica, total, i
        for replica in range(self.num_replicas if self.reads_state else 0):
            total = 0
            for i in range(self.assignment.count):
                total += (<InstanceView>self._views[i]).accounts[replica].in_flight
            if total != self.view.accounts[replica].in_flight:
                return broken("Instances: the accounts of the instances are not that of the gateway")
        return 0

    cdef inline void _account(self, int32_t instance, int32_t row, int32_t replica, int32_t sign,
                              bint is_new) noexcept nogil:
        """Add a request to the account of an instance, or take it out; `is_new` : it is sent."""
        cdef ReplicaAccount* account = &(<InstanceView>self._views[instance]).accounts[replica]
        account.in_flight += sign
        account.dispatched += is_new
        account.in_flight_tokens += sign * <int64_t>self.requests[row].prompt_tokens
        account.expected_tokens += sign * <int64_t>max(self.demands[row].expected_tokens, 0)
        (<InstanceView>self._views[instance]).mark_in_flight(replica)


def _keep_to(InstanceView view, pool):
    """Bar the replicas of all other pools."""
    for replica, other in enumerate(view.account_array["pool"].tolist()):
        if other != pool:
            view.bar(replica, 1)
