"""KV beyond the blocks of a replica: the base of all tiers, which holds nothing."""
from simulator.core.clock cimport NEVER_NS


cdef class KVTier:
    """Base of all tiers; see tier.pxd for the contract."""

    def __cinit__(self, *_, **__):
        self.names_blocks, self.reserved_tokens = True, -1

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        found.tokens, found.comes_later = 0, False
        return 0

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        return now_ns

    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil:
        return -1

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return 0

    cdef LoadEnd load_end(self, int32_t row) noexcept nogil:
        return LOAD_CAME

    # ---- tiers with KV that other replicas compute

    cdef bint has_first_token(self, int32_t row) noexcept nogil:
        return False

    cdef int32_t slot_of(self, int32_t row) noexcept nogil:
        return -1

    cdef void runs(self, int32_t row) noexcept nogil:
        pass

    cdef int was_admitted(self, int32_t row) except -1 nogil:
        return 0

    cdef int chunk_ended(self, int32_t row, int64_t computed) except -1 nogil:
        return 0

    # ---- tiers that copy

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        return 0

    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil:
        return 0

    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        return 0

    cdef int preempted(self, int32_t row) except -1 nogil:
        return 0

    cdef int plan(self) except -1 nogil:
        return 0

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        return now_ns

    cdef bint has_acted(self) noexcept nogil:
        return False

    cdef int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil:
        return 0

    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil:
        return -1

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        return 0

    cdef int gives_up(self, int32_t row) except -1 nogil:
        return 0

    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil:
        return True

    cdef int64_t next_end_ns(self) noexcept nogil:
        return NEVER_NS

    cdef bint is_quiet(self) noexcept nogil:
        return True

    cdef bint surely_decides(self, int32_t row) noexcept nogil:
        return False

    cdef bint may_lag(self) noexcept nogil:
        return False

    cdef int catch_up(self, const int64_t* ends_ns, int32_t count, int32_t behind, int64_t* num_done) except -1 nogil:
        return 0

    cdef int fail(self) except -1 nogil:
        return 0

    def attach(self, kv, content, use=None, with_tables=False):
        """Be the tier of a replica; called before the first request arrives.

        kv : its KVCache.
        content : the texts of the requests.
        use : structured array (requests,), `records.TIER_USE`, in which each request's part is counted.
        with_tables : the places of chunks are requested; else only decisions are observable.
        """

    def share_content(self, content):
        """See KVCache."""

    def share(self, stores):
        """Keep KV in stores of the whole cluster, too; called before `attach`.

        stores : {name: Level}, to which missing ones are added.
        """

    def holdings(self):
        """Return the texts it holds and where, `kv.holdings.Holdings`, for followers outside the replica.

        None: it shows none. Called after `attach`, while it is empty.
        """

    def rows(self):
        """Return the counters of each of its levels, dicts of the fields of `records.KV_TIER`."""
        return []

    def keep_log(self):
        """Keep a log from now on, for the debug face."""

    def take_log(self):
        """Return the log of the step formed last, see OffloadingTier.take_log; None: it keeps none."""
