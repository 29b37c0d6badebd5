"""Base of all scorers: a score of each replica for a request."""
from libc.math cimport INFINITY
from libc.stdlib cimport calloc, free

import numpy as np


cdef class Scorer:
    """Base of all scorers; one overrides `rate`, `note` or both.

    A scorer is built as `Scorer(parameters, context)`, with its own frozen `Parameters` and a `RoutingContext`.
    """

    tier_keys = ()                      # of Parameters: weights of content in [kv_tiers]; 0: not counted

    @classmethod
    def sees_tiers(cls, parameters):
        """Return whether it looks at the content of replicas' KV tiers."""
        return any(getattr(parameters, key) for key in cls.tier_keys)

    @classmethod
    def reads_account(cls, parameters):
        """Return whether it scores by the requests, or their tokens, on the gateway's own account."""
        return False

    @classmethod
    def idle_keys(cls):
        """Return the keys of `Parameters` without an effect unless there is a table: key -> (table, why)."""
        return dict.fromkeys(cls.tier_keys, ("kv_tiers", "it weighs the content of tiers"))

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.view = context.view
        self.num_replicas = self.view.num_replicas
        self._owners = context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]
        self.content, self.has_rewritten = context.content, True
        self.values = <double*>calloc(self.num_replicas, sizeof(double))
        if self.values == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.values)

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        return 0

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        self.has_rewritten = False
        return 1

    cdef int32_t rate_some(self, int32_t row, int64_t now_ns, int32_t* listed, double* rest) except -2 nogil:
        return -1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    # The face for tests and exploration.

    def scores(self, row, now_ns):
        """Return the score of each replica for a request, as `weighted` uses it; of closed ones: NaN."""
        cdef int32_t i
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            self.note(i, self.view.accounts[i].is_routable)
        is_any = self.rate(row, now_ns)
        result = np.zeros(self.num_replicas)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable:
                result[i] = np.nan
            elif is_any:
                result[i] = self.values[i]
        return result

    def note_sent(self, row, replica, now_ns):
        """Notify the scorer that a request was sent to a replica."""
        self.sent(row, replica, now_ns)

    def note_left(self, row, replica, now_ns):
        """Notify the scorer that a request has left a replica."""
        self.left(row, replica, now_ns)

    def note_closed(self, replica, now_ns):
        """Notify the scorer that a replica may not be routed to any more."""
        self.closed(replica, now_ns)


cdef class LowestBest(Scorer):
    """Base of scorers that rank replicas between two extremes of a level.

    score = (highest - level) / (highest - lowest), over the replicas that can be routed to; 1 if all are equal.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.lows, self.highs = TiedMinima(self.num_replicas), TiedMinima(self.num_replicas)
        self._width = -1.0

    cdef double level(self, int32_t replica) noexcept nogil:
        return 0.0

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        cdef double level = self.level(replica)
        self.lows.set(replica, level if is_open else INFINITY)
        self.highs.set(replica, -level if is_open else INFINITY)
        if self._width > 0:
            self.values[replica] = (self._most - level) / self._width
        return 0

    cdef void find_extremes(self, double* most, double* least) noexcept nogil:
        cdef double level
        cdef int32_t i
        most[0], least[0] = -self.highs.least(), self.lows.least()
        if self.kept == NULL:
            return
        most[0], least[0] = -INFINITY, INFINITY
        for i in range(self.num_replicas):
            if self.kept[i]:
                level = self.lows.get(i)
                most[0], least[0] = max(most[0], level), min(least[0], level)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double most, least, width
        cdef int32_t i
        self.find_extremes(&most, &least)
        width = most - least
        self.has_rewritten = width != self._width or most != self._most
        if not self.has_rewritten:              # `note` has done it all
            return 1
        self._most, self._width = most, width
        for i in range(self.num_replicas):
            self.values[i] = (most - self.lows.get(i)) / width if width > 0 else 1.0
        return 1
