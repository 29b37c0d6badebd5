"""Replicas that lag behind the clock, brought up to date for an occasional reader."""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.engine.fleet.lookahead cimport bring, next_departure_ns, prepare


@cython.final
cdef class Laggards:
    """All of `replicas`, a list.

    wakes : WakeHeap, when each may let a request go. departures : Departures, lists those that acted at this instant.
    """

    def __init__(self, replicas, WakeHeap wakes, Departures departures):
        cdef Replica replica
        self._wakes, self._departures = wakes, departures
        self.lookaheads = <Lookahead*>calloc(len(replicas), sizeof(Lookahead))
        if self.lookaheads == NULL:
            raise MemoryError()
        for replica in replicas:
            prepare(&self.lookaheads[replica.index], replica)

    def __dealloc__(self):
        free(self.lookaheads)

    cdef int bring_up(self, Replica replica, int64_t now_ns) except -1 nogil:
        cdef Lookahead* lookahead = &self.lookaheads[replica.index]
        cdef int64_t until_ns = self._departures.acted_until_ns(replica.index, now_ns)
        if until_ns > now_ns and lookahead.last_ns == now_ns and not self._departures.had_turn(
                replica.index, lookahead.last_turn):
            until_ns = now_ns       # requests sent there at this instant have not started yet
        bring(lookahead, replica, until_ns, NEVER_NS)
        self._wakes.set(replica.index, next_departure_ns(lookahead, replica, replica.rank.scheduler))
        return 0
