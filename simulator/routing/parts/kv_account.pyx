"""A router's own account of prefills and blocks at each replica.

A prefill ends with the first token of the request. Source of the rules: decisions of ai-dynamo-runtime 1.6.1,
`SelectionService`, recorded and explained in formulas; decay of the oldest prefill: ai-dynamo/dynamo, the prefill load
of lib/kv-router/src/sequences, 2026.
"""
from libc.math cimport ceil
from libc.stdlib cimport calloc, free, malloc
cimport cython

from simulator.core.index_list cimport NONE, new_list


@cython.final
cdef class KvAccount:
    """The account of the replicas of a view, empty at first.

    context : simulator.routing.base.RoutingContext: view, workload, content and block size.
    tracks_prefill : whether unfinished prefills count.
    prices_us : of a prefill and of each of its tokens, if the oldest one of a replica decays; None: it does not.
    is_shared : see `LiveBlocks`.
    """

    def __cinit__(self, context, bint tracks_prefill=True, prices_us=None, bint is_shared=True):
        cdef const Request[::1] requests = context.workload.requests
        cdef int32_t i
        self._view, self._num_replicas = context.view, context.view.num_replicas
        self.blocks, self._tracks_prefill, self._looked_ns = LiveBlocks(context, is_shared), tracks_prefill, -1
        self._owner, self._requests = context.workload, &requests[0] if len(requests) else NULL
        self._links = IndexLinks(len(requests))
        self._uncached = <int32_t*>malloc(max(len(requests), 1) * sizeof(int32_t))
        self._prefills = <IndexList*>malloc(self._num_replicas * sizeof(IndexList))
        self.prefill_tokens = <int64_t*>calloc(self._num_replicas, sizeof(int64_t))
        self._oldest_since_ns = <int64_t*>calloc(self._num_replicas, sizeof(int64_t))
        if (self._uncached == NULL or self._prefills == NULL or self.prefill_tokens == NULL
                or self._oldest_since_ns == NULL):
            raise MemoryError()
        if prices_us is not None:
            self._decays, self._base_ns, self._token_ns = True, 1e3 * prices_us[0], 1e3 * prices_us[1]
        for i in range(<int32_t>len(requests)):
            self._uncached[i] = -1
        for i in range(self._num_replicas):
            self._prefills[i] = new_list()

    def __dealloc__(self):
        free(self._uncached)
        free(self._prefills)
        free(self.prefill_tokens)
        free(self._oldest_since_ns)

    cdef int sent(self, int32_t row, int32_t replica, int64_t uncached, int64_t now_ns) except -1 nogil:
        self.blocks.add(row, replica)
        self._uncached[row] = 0
        if self._tracks_prefill and uncached > 0 and self._requests[row].first_token_ns < 0:
            self._uncached[row] = <int32_t>uncached
            self.prefill_tokens[replica] += uncached
            if self._prefills[replica].size == 0:
                self._oldest_since_ns[replica] = now_ns
            self._links.push_back(&self._prefills[replica], row)
        self._view.mark(replica)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._uncached[row] < 0:
            return 0
        self.prefilled(row, replica, now_ns)
        self._uncached[row] = -1
        self.blocks.remove(row, replica)
        self._view.mark(replica)
        return 0

    cdef void prefilled(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        if self._uncached[row] > 0:
            if self._prefills[replica].head == row:
                self._oldest_since_ns[replica] = max(self._oldest_since_ns[replica], now_ns)
            self.prefill_tokens[replica] -= self._uncached[row]
            self._uncached[row] = 0
            self._links.remove(&self._prefills[replica], row)
            self._view.mark(replica)

    cdef int64_t remaining(self, int32_t replica) noexcept nogil:
        cdef int32_t oldest = self._prefills[replica].head
        cdef double predicted_ns, left
        if not self._decays or oldest == NONE:
            return self.prefill_tokens[replica]
        predicted_ns = self._base_ns + self._token_ns * self._uncached[oldest]
        left = 0.0
        if predicted_ns > 0:
            left = min(max(1.0 - (self._now_ns - self._oldest_since_ns[replica]) / predicted_ns, 0.0), 1.0)
        return self.prefill_tokens[replica] - self._uncached[oldest] + <int64_t>ceil(self._uncached[oldest] * left)

    cdef void note_prefills(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i, replica, row, following
        self._now_ns = now_ns
        for replica in range(self._num_replicas if self._decays else 0):
            if self._prefills[replica].size > 0:
                self._view.mark(replica)
        if self._view.looked_ns != now_ns and self._view.looked_ns == self._looked_ns:
            return                      # the view shows an earlier instant, up to which all ends are noted
        self._looked_ns = self._view.looked_ns
        for i in range(self._view.num_changed):
            replica = self._view.changed[i]
            row = self._prefills[replica].head
            while row != NONE:
                following = self._links.next(row)
                if self._requests[row].first_token_ns >= 0:
                    self.prefilled(row, replica, self._requests[row].first_token_ns)
                row = following

    cpdef int check(self) except -1:
        """Raise RuntimeError if lists and sums do not agree."""
        cdef int32_t replica, row
        self.blocks.check()
        for replica in range(self._num_replicas):
            self._links.check_list(&self._prefills[replica])
            total, row = 0, self._prefills[replica].head
            while row != NONE:
                total += self._uncached[row]
                row = self._links.next(row)
            if total != self.prefill_tokens[replica]:
                raise RuntimeError("KvAccount: the prefill tokens of a replica are miscounted")
        return 0

    # The face for tests and exploration.

    def note_sent(self, row, replica, uncached_tokens, now_ns=0):
        """Note that a request was sent to a replica."""
        self.sent(row, replica, uncached_tokens, now_ns)

    def note_left(self, row, replica, now_ns=0):
        """Note that a request has left a replica."""
        self.left(row, replica, now_ns)

    def note_prefilled(self, row, replica, now_ns=0):
        """Note that the prefill of a request is done."""
        self.prefilled(row, replica, now_ns)

    def note_time(self, now_ns):
        """Note the time."""
        self.note_prefills(now_ns)

    def note_output_block(self, row, replica, weight=None):
        """Note one more output block of a request; `weight`: of its blocks; None: they stay as they are."""
        self.blocks.add_output(row, replica, -1.0 if weight is None else weight)
        self._view.mark(replica)

    def loads(self):
        """Return (prefill tokens, blocks) of each replica."""
        return [(self.remaining(i), self.blocks.blocks(i)) for i in range(self._num_replicas)]
