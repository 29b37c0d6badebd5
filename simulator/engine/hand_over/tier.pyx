"""The KV of prefill replicas, as the scheduler of a replica sees it.

A decode replica finds all of a prompt beyond its own prefix hits at the prefill replica, once; a request that is
preempted later computes its text anew. The blocks of a prefill leg stay until they have been read, unless they are
copied as soon as they are computed. Source: vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/nixl/
pull_scheduler.py.
"""
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.transfer cimport ASKED, MOVED, NOT_COME, PREFILLING, READY
from simulator.kv.tier cimport LOAD_CAME, LOAD_FATAL, LOAD_LOST

from simulator.engine.hand_over.plan import PLACES


@cython.final
cdef class RemoteTier(KVTier):
    """The KV that one replica may read of others, or keeps for them.

    `HandOver` carries out its requests.

    transfers : structured array (requests,), `records.TRANSFER`. requests : of the workload, with prefill legs.
    departures : of the cluster, for reports of requests that want to be read.
    ways : plan.Ways. plan : HandOverPlan.
    """

    def __init__(self, transfers, requests, Departures departures, ways, plan):
        cdef Transfer[::1] rows = transfers
        cdef const Request[::1] records = requests
        self._owners, self._departures, self._num_clients = (transfers, requests), departures, len(transfers)
        self.takes_groups, self.names_blocks, self._recomputes = True, ways.names_blocks, plan.recomputes
        self.copies, self.puts_off_frees, self.drops_stale_tokens = (
            ways.polls, ways.polls and ways.reads, not ways.reads)
        self._needs_token = ways.needs_token
        self._place = <Place><int>PLACES.index(plan.place)
        self._comes_early, self._has_first_token = plan.order != "source", plan.has_first_token
        self.hears_of_chunks, self._hears_of_layers = plan.granularity != "prompt", plan.granularity == "layer"
        self.reserved_tokens = plan.reserved_tokens if ways.reads else -1
        if len(transfers):
            self._transfers, self._requests = &rows[0], &records[0]

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        if row >= self._num_clients:
            return 0
        self._transfers[row].loaded_tokens = 0
        if self._has_kv(row):
            found.comes_later, found.has_first_token = self._place == ASKED_FOR, self._has_first_token
            found.tokens = max(self._requests[row + self._num_clients].prompt_tokens - local_tokens, 0)
            if self._place == AFTERWARDS:       # the token that arrived with the KV is computed here
                found.tokens = max(self._requests[row].prompt_tokens + self._requests[row].output_tokens
                                   - local_tokens - 1, 0)
            elif found.tokens == 0 and not self._needs_token:       # sent again with part of its output: all KV is here
                self._transfers[row].stage = MOVED
                self._departures.add(row)
        return 0

    cdef bint _has_kv(self, int32_t row) noexcept nogil:
        """Return whether a prefill replica has the KV of a prompt, or will have it."""
        cdef const Transfer* it = &self._transfers[row]
        if it.decode_slot >= 0:
            return False
        if self._place == AFTERWARDS:
            return it.stage == MOVED and it.start_ns >= 0       # it was sent, and has arrived, unless `unawaited`
        return it.stage == READY or (self._comes_early and it.stage == PREFILLING)

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        it.loaded_tokens, it.decode_slot = <int32_t>found.tokens, slot
        if self._place == AFTERWARDS:
            return now_ns
        if it.stage == READY:
            it.stage = ASKED
        self._departures.add(row)
        self._has_acted = True
        return NEVER_NS

    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil:
        cdef int32_t client = row - self._num_clients
        if client < 0 or self._transfers[client].stage != PREFILLING or self._place != ASKED_FOR:
            return -1
        self._transfers[client].prefill_slot = slot
        self._has_acted = True
        return NEVER_NS

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return self._transfers[row].loaded_tokens if row < self._num_clients else 0

    cdef bint has_first_token(self, int32_t row) noexcept nogil:
        return self._has_first_token and row < self._num_clients and self._transfers[row].stage == MOVED

    cdef int32_t slot_of(self, int32_t row) noexcept nogil:
        return self._transfers[row].decode_slot if row < self._num_clients else -1

    cdef void runs(self, int32_t row) noexcept nogil:
        self._transfers[row].decode_slot = -1

    cdef int was_admitted(self, int32_t row) except -1 nogil:
        cdef int32_t client = row - self._num_clients
        if self._hears_of_layers and client >= 0 and not self._transfers[client].has_begun:
            self._transfers[client].has_begun = True
            self._departures.add(row)
        return 0

    cdef int chunk_ended(self, int32_t row, int64_t computed) except -1 nogil:
        cdef int32_t client = row - self._num_clients
        if not self._hears_of_layers and client >= 0:
            self._transfers[client].computed_tokens = max(self._transfers[client].computed_tokens, <int32_t>computed)
            self._departures.add(row)
        return 0

    cdef LoadEnd load_end(self, int32_t row) noexcept nogil:
        cdef Transfer* it = &self._transfers[row]
        if it.stage != NOT_COME:
            return LOAD_CAME
        if self._recomputes:
            it.stage, it.loaded_tokens, it.decode_slot = MOVED, 0, -1
            return LOAD_LOST
        self._departures.add(row)
        return LOAD_FATAL

    # ---- reports of steps

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        self._has_acted = True
        return 0

    cdef int plan(self) except -1 nogil:
        self._acts, self._has_acted = self._has_acted, False
        return 0

    cdef bint has_acted(self) noexcept nogil:
        return self._acts

    cdef bint is_quiet(self) noexcept nogil:
        return not (self._acts or self._has_acted)  # blocks of a departed request may be freed when the step has ended
