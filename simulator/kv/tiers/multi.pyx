"""Two tiers of one replica: KV transfer from other replicas, and its own host memory.

When a request is matched, both tiers are asked, and the first that has tokens loads them; a tier that does not know yet
puts the request off. Both store. Source: vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/multi_connector.py,
MultiConnector.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tier cimport UNDECIDED, External, KVTier, LoadEnd


@cython.final
cdef class MultiTier(KVTier):
    """Base of the tiers of a replica that has two.

    first : may keep blocks of completed requests, gets the chunks that they compute, and reports ended loads by
        `Scheduler.comes_at`.
    second : frees blocks at once, and reports ended loads by `take_loaded`.
    asks_both : the second is asked even where the first has something: it may put the request off, as in vLLM.
    """

    cdef readonly KVTier first, second
    cdef bint _asks_both
    cdef bint _first_has_it         # the first tier has tokens for the request that asked last

    cdef inline bint _is_of_first(self, int32_t row) noexcept nogil:
        """Did the first tier do the last load of a request?"""
        return self.first.loaded_tokens(row) > 0

    def __init__(self, KVTier first, KVTier second, asks_both=True):
        self.first, self.second, self._asks_both = first, second, asks_both
        self.copies = True
        self.puts_off_frees = first.puts_off_frees or second.puts_off_frees
        self.drops_stale_tokens = first.drops_stale_tokens or second.drops_stale_tokens
        self.names_blocks = first.names_blocks or second.names_blocks
        self.hears_of_chunks, self.reserved_tokens = first.hears_of_chunks, first.reserved_tokens

    # ---- hits and loads

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        cdef External other
        self.first.match(row, local_tokens, found)
        self._first_has_it = found.tokens > 0
        if self._first_has_it and not self._asks_both:
            return 0
        other.tokens, other.comes_later, other.has_first_token = 0, False, False
        self.second.match(row, local_tokens, &other)
        if other.tokens == UNDECIDED or not self._first_has_it:
            found[0] = other
        return 0

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        if self._first_has_it:
            return self.first.load(row, slot, found, now_ns)
        return self.second.load(row, slot, found, now_ns)

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return self.first.loaded_tokens(row) if self._is_of_first(row) else self.second.loaded_tokens(row)

    cdef LoadEnd load_end(self, int32_t row) noexcept nogil:
        return self.first.load_end(row) if self._is_of_first(row) else self.second.load_end(row)

    cdef bint has_first_token(self, int32_t row) noexcept nogil:
        return self._is_of_first(row) and self.first.has_first_token(row)

    # ---- the first alone

    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil:
        return self.first.keep_until(row, slot, now_ns)

    cdef int was_admitted(self, int32_t row) except -1 nogil:
        return self.first.was_admitted(row)

    cdef int chunk_ended(self, int32_t row, int64_t computed) except -1 nogil:
        return self.first.chunk_ended(row, computed)

    # ---- steps

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        self.first.begins(now_ns)
        return self.second.begins(now_ns)

    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        self.first.computes(slot, row, computed, text)
        return self.second.computes(slot, row, computed, text)

    cdef int preempted(self, int32_t row) except -1 nogil:
        self.first.preempted(row)
        return self.second.preempted(row)

    cdef int plan(self) except -1 nogil:
        self.first.plan()
        return self.second.plan()

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        return self.second.launch(self.first.launch(now_ns, free_ns), free_ns)

    cdef int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil:
        self.first.begin_loads(launch_ns, end_ns)
        return self.second.begin_loads(launch_ns, end_ns)

    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil:
        return max(self.first.stays_ns(start_ns, executes_ns), self.second.stays_ns(start_ns, executes_ns))

    cdef bint has_acted(self) noexcept nogil:
        return self.first.has_acted() or self.second.has_acted()

    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil:
        return self.second.take_loaded(num_done)

    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil:
        return self.first.is_through_with(slot, row) and self.second.is_through_with(slot, row)

    cdef int64_t next_end_ns(self) noexcept nogil:
        return min(self.first.next_end_ns(), self.second.next_end_ns())

    cdef bint is_quiet(self) noexcept nogil:
        return self.first.is_quiet() and self.second.is_quiet()

    # ---- requests that leave

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        self.first.leaves(slot, row, computed, text)
        return self.second.leaves(slot, row, computed, text)

    cdef int gives_up(self, int32_t row) except -1 nogil:
        self.first.gives_up(row)
        return self.second.gives_up(row)

    cdef int fail(self) except -1 nogil:
        self.first.fail()
        return self.second.fail()

    # ---- building, results, the debug face: of the second

    def attach(self, kv, content, use=None, with_tables=False):
        """See KVTier."""
        self.second.attach(kv, content, use, with_tables)
        self.looks_below, self.stays = True, self.second.stays

    def share_content(self, content):
        """See KVCache."""
        self.second.share_content(content)

    def share(self, stores):
        """See KVTier."""
        self.second.share(stores)

    def holdings(self):
        """See KVTier."""
        return self.second.holdings()

    def rows(self):
        """See KVTier."""
        return self.second.rows()

    def keep_log(self):
        """See KVTier."""
        self.second.keep_log()

    def take_log(self):
        """See KVTier."""
        return self.second.take_log()

    def check(self):
        """Raise RuntimeError unless the tier of host memory agrees with itself."""
        self.second.check()
