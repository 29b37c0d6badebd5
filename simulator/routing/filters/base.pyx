"""Base of all filters: the replicas that stay candidates for a request."""
from libc.stdlib cimport free, malloc

from simulator.core.random_streams import RandomStreams


cdef class Filter:
    """Base of all filters; one overrides `keep`.

    A filter is built as `Filter(parameters, context)`, with its own frozen `Parameters` and a `RoutingContext`.
    """

    tier_keys = ()                      # of Parameters: weights of content in [kv_tiers]; no filter looks at it

    @classmethod
    def sees_tiers(cls, parameters):
        """Return whether it looks at the content of replicas' KV tiers."""
        return False

    @classmethod
    def idle_keys(cls):
        """Return the keys of `Parameters` without an effect unless there is a table: key -> (table, why)."""
        return {}

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.view = context.view
        self.num_replicas = self.view.num_replicas
        self._owners = context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]
        self.content = context.content
        stream = RandomStreams(context.seed).generator(f"{context.stream} filter {type(self).__name__}")
        self._key = stream.bit_generator.random_raw()

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        return count

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    # The face for tests and exploration.

    def kept(self, row, now_ns, candidates=None):
        """Return the candidates that stay, as a list.

        candidates : open replicas in ascending order; None: all.
        """
        cdef int32_t i
        if candidates is None:
            candidates = [i for i in range(self.num_replicas) if self.view.accounts[i].is_routable]
        cdef int32_t count = len(candidates)
        cdef int32_t* listed = <int32_t*>malloc((count + 1) * sizeof(int32_t))
        if listed == NULL:
            raise MemoryError()
        try:
            for i in range(count):
                listed[i] = candidates[i]
            self.view.look(now_ns)
            count = self.keep(row, listed, count, now_ns)
            return [listed[i] for i in range(count)]
        finally:
            free(listed)

    def note_sent(self, row, replica, now_ns):
        """Notify the filter that a request was sent to a replica."""
        self.sent(row, replica, now_ns)

    def note_closed(self, replica, now_ns):
        """Notify the filter that a replica may not be routed to any more."""
        self.closed(replica, now_ns)


cdef class EachAlone(Filter):
    """Base of filters that test each replica by itself; one overrides `passes`."""

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        return True

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        cdef int32_t num_kept = 0, i, replica
        for i in range(count):
            replica = candidates[i]
            if self.passes(row, replica, now_ns):
                candidates[num_kept] = replica
                num_kept += 1
        if num_kept == 0 and self.falls_back:
            self.num_fallbacks += 1
            return count
        return num_kept
