"""A router's view of its replicas, fresh or stale, and the list of changed replicas."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.replica_state cimport ReplicaAccount, ReplicaState


cdef class View:
    cdef readonly int32_t num_replicas      # routable or not; replicas are 0 .. num_replicas - 1 here
    cdef ReplicaState* states               # [replica] as last seen by `look`
    cdef ReplicaAccount* accounts           # [replica] exact at any time
    cdef readonly object state_array        # NumPy arrays of both, records.REPLICA_STATE and REPLICA_ACCOUNT
    cdef readonly object account_array

    # Fields that consumers need; set by their constructors. Counts change only when a replica acts, other fields also
    # during its iterations; a field that no consumer requests may be older than the look.
    cdef public bint wants_counts           # waiting, running, loading, preemptions, tokens of prompts
    cdef public bint wants_blocks           # KV blocks in use; and counts
    cdef public bint wants_levels           # all other fields of a state but its time; and blocks
    cdef public bint wants_times            # `time_ns` is that of the look, unless the replica is silent
    cdef public bint wants_caches           # `cached_blocks`
    cdef public bint wants_tiers            # `tiers_in_turn`, `best_tiers`
    cdef public bint wants_adapters         # `holds_adapter`; and counts, with which it is read
    cdef public bint wants_in_flight        # gains and losses of requests in `changed`, not by `sent` and `left`

    # A live look leaves an unchanged state as it is, `time_ns` too, unless times are requested; the state is as of
    # `looked_ns` nevertheless, unless the replica `is_silent`.
    cdef int64_t looked_ns

    # Replicas with a seen state or an account that changed since `forget_changes`, each once, in no special order.
    # Kept for consumers that update scores by changes.
    cdef int32_t* changed
    cdef readonly int32_t num_changed
    cdef int8_t* _is_changed

    # More than accounts and caches is requested.
    cdef inline bint wants_states(self) noexcept nogil:
        return self.wants_counts or self.wants_blocks or self.wants_levels

    # Bring `states` up to `now_ns`, as far as visible. The engine overrides it; a plain View shows written values.
    cdef int look(self, int64_t now_ns) except -1 nogil

    # Leading whole blocks of the text of request `row` that are in the KV cache of a replica, as far as can be known at
    # `now_ns`, in blocks of RoutingContext.block_size tokens. The engine overrides it; in a plain View there are none.
    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil

    # cached_blocks of all replicas at once, [num_replicas]. Valid until the next call.
    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil
    cdef int32_t* cached                    # result of cached_everywhere, unless the engine computes it

    # Is a LoRA adapter loaded at a replica, as far as can be known at `now_ns`? Of no meaning unless `knows_adapters`.
    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil
    cdef readonly bint knows_adapters       # the replicas report their loaded adapters

    # Blocks by tier, [medium x num_replicas], see signals/media.pxd and TierHolders. tiers_in_turn: on each medium of
    # `media` (bit m), the blocks after the previous medium's; best_tiers: each block at the first medium in `order`
    # that has it. Without tiers, and in a plain View, DEVICE alone. Valid until the next call of either.
    cdef readonly bint has_tiers            # tiers exist and are requested; else use `cached_everywhere`
    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil
    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil
    cdef int32_t* _tiered                   # result of tiers_in_turn in a plain View

    cdef inline void mark(self, int32_t replica) noexcept nogil:
        if not self._is_changed[replica]:
            self._is_changed[replica] = True
            self.changed[self.num_changed] = replica
            self.num_changed += 1

    cdef inline void mark_in_flight(self, int32_t replica) noexcept nogil:
        if self.wants_in_flight:
            self.mark(replica)

    cdef inline void forget_changes(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_changed):
            self._is_changed[self.changed[i]] = False
        self.num_changed = 0
