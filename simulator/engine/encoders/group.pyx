"""The encoder replicas for the requests of one gateway, and the router among them."""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.errors cimport broken
from simulator.domain.replica_state cimport ReplicaAccount
from simulator.routing.door cimport ask

from simulator.routing.base import RoutingContext


@cython.final
cdef class Group:
    """Replicas of the encode pools that serve the same requests.

    gateway, region : of the requests.
    replicas : their numbers among all encoder replicas, `num_replicas`.
    plan : EncodePlan. requests : jobs.JobRequests.
    stream : (seed, name) of the router's random stream.
    """

    def __init__(self, Gateway gateway, region, replicas, int32_t num_replicas, plan, requests, stream):
        cdef int32_t i
        self.gateway, self.region, self.view = gateway, region, View(len(replicas))
        self._places = <int32_t*>malloc(num_replicas * sizeof(int32_t))
        if self._places == NULL:
            raise MemoryError()
        for i in range(num_replicas):
            self._places[i] = -1
        for place, replica in enumerate(replicas):
            self._places[<int32_t>replica] = place
        self.view.account_array["replica"] = replicas
        seed, name = stream
        self.router = plan.router(plan.router_parameters, RoutingContext(
            self.view, requests, None, seed=seed, stream=name))

    def __dealloc__(self):
        free(self._places)

    cdef int32_t send(self, int32_t job, int32_t embeddings, int64_t now_ns) except -1 nogil:
        cdef int32_t place = ask(self.router, job, now_ns)
        cdef ReplicaAccount* account
        if place < 0:
            return broken("a router chose no replica to encode an item, and all are open")
        account = &self.view.accounts[place]
        account.in_flight += 1
        account.in_flight_tokens += embeddings
        account.dispatched += 1
        self.view.mark_in_flight(place)
        self.router.sent(job, place, now_ns)
        return account.replica

    cdef int left(self, int32_t job, int32_t replica, int32_t embeddings, int64_t now_ns) except -1 nogil:
        cdef int32_t place = self._places[replica]
        cdef ReplicaAccount* account = &self.view.accounts[place]
        account.in_flight -= 1
        account.in_flight_tokens -= embeddings
        self.view.mark_in_flight(place)
        return self.router.left(job, place, now_ns)
