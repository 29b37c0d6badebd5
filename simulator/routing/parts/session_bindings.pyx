"""The replica to which a session is bound, for a time after its last request.

Source: ai-dynamo/dynamo, lib/llm/src/session_affinity/coordinator.rs at 0bdea740; its limit of 65,536 sessions is not
modelled.
"""
cimport cython
from libc.stdlib cimport calloc, free

from simulator.core.clock cimport ns_from_s


@cython.final
cdef class SessionBindings:
    """The bindings of all sessions of a workload, none at first.

    context : RouterContext. ttl_s : time after the end of the last request of a session for which it stays bound.
    """

    def __cinit__(self, context, double ttl_s):
        cdef const Demand[::1] demands = context.workload.demands
        num_sessions = int(context.workload.demands["session"].max(initial=-1)) + 1
        self._bindings = <SessionBinding*>calloc(num_sessions + 1, sizeof(SessionBinding))
        if self._bindings == NULL:
            raise MemoryError()
        self._owner, self._view, self._ttl_ns = context.workload, context.view, ns_from_s(ttl_s)
        if len(demands):
            self._demands = &demands[0]

    def __dealloc__(self):
        free(self._bindings)

    cdef int32_t of(self, int32_t row, int64_t now_ns) noexcept nogil:
        cdef int32_t session = self._demands[row].session
        cdef const SessionBinding* bound = &self._bindings[max(session, 0)]
        if session < 0 or bound.replica == 0 or (bound.in_flight == 0 and bound.until_ns <= now_ns):
            return -1
        return bound.replica - 1 if self._view.accounts[bound.replica - 1].is_routable else -1

    cdef void sent(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        cdef int32_t session = self._demands[row].session
        if session < 0:
            return
        if self.of(row, now_ns) != replica:
            self._bindings[session].replica, self._bindings[session].in_flight = replica + 1, 0
        self._bindings[session].in_flight += 1

    cdef void left(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        cdef int32_t session = self._demands[row].session
        if session < 0 or self._bindings[session].replica != replica + 1 or self._bindings[session].in_flight == 0:
            return                      # it was sent before the session was bound anew
        self._bindings[session].in_flight -= 1
        self._bindings[session].until_ns = now_ns + self._ttl_ns
