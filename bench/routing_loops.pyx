# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""A gateway without an engine: requests are routed, some stay in flight, replicas change; without the GIL."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from simulator.domain.replica_state cimport ReplicaAccount, ReplicaState
from simulator.domain.request cimport Request
from simulator.routing.base cimport Router
from simulator.signals.view cimport View


cdef class GatewayLoop:
    """Route the requests of a workload in turn; each is gone when `in_flight` more have been sent.

    Requests in flight wait or run on their replica in equal parts, and hold KV blocks.
    """

    cdef Router router
    cdef View view
    cdef const Request* requests
    cdef object owner
    cdef int32_t num_requests
    cdef int32_t in_flight
    cdef int32_t* replicas      # [in_flight] the replicas of the latest requests, in turn; -1: none yet
    cdef int32_t place          # of the next one
    cdef int32_t row
    cdef int64_t now_ns

    def __init__(self, router, workload, int32_t in_flight):
        cdef const Request[::1] requests = workload.requests
        cdef int32_t i
        self.router, self.view, self.owner = router, router.view, workload
        self.requests, self.num_requests, self.in_flight = &requests[0], len(requests), in_flight
        self.replicas = <int32_t*>calloc(in_flight, sizeof(int32_t))
        for i in range(in_flight):
            self.replicas[i] = -1

    def __dealloc__(self):
        free(self.replicas)

    cdef void change(self, int32_t replica, int32_t row, int32_t by) noexcept nogil:
        cdef ReplicaAccount* account = &self.view.accounts[replica]
        cdef ReplicaState* state = &self.view.states[replica]
        account.in_flight += by
        account.in_flight_tokens += by * self.requests[row].prompt_tokens
        state.waiting = account.in_flight // 2
        state.running = account.in_flight - state.waiting
        state.used_blocks = 16 * account.in_flight
        self.view.mark(replica)

    def run(self, int64_t count):
        cdef int32_t place, replica, gone
        with nogil:
            for _ in range(count):
                self.now_ns += 1000000
                place = self.place
                replica = self.replicas[place]
                if replica >= 0:
                    gone = self.row - self.in_flight
                    gone += self.num_requests if gone < 0 else 0
                    self.change(replica, gone, -1)
                    self.router.left(gone, replica, self.now_ns)
                replica = self.router.route(self.row, self.now_ns)
                self.change(replica, self.row, 1)
                self.router.sent(self.row, replica, self.now_ns)
                self.replicas[place] = replica
                self.place = place + 1 if place + 1 < self.in_flight else 0
                self.row = self.row + 1 if self.row + 1 < self.num_requests else 0
