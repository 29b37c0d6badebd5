"""What a router may see of its replicas, fresh or stale, and which of them changed."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.replica_state cimport ReplicaAccount, ReplicaState


cdef class View:
    cdef readonly int32_t num_replicas      # routable or not; replicas are 0 .. num_replicas - 1 here
    cdef ReplicaState* states               # [replica] as last seen by `look`
    cdef ReplicaAccount* accounts           # [replica] exact at any time
    cdef readonly object state_array        # the same as NumPy arrays, records.REPLICA_STATE and REPLICA_ACCOUNT
    cdef readonly object account_array

    # What those who look want, set when they are made. Counts change only when a replica acts, the others on the way;
    # what nobody wants may be older than the look.
    cdef public bint wants_counts           # waiting, running, loading, preemptions, tokens of prompts
    cdef public bint wants_blocks           # KV blocks in use; and counts
    cdef public bint wants_levels           # all else that a state says but its time; and blocks
    cdef public bint wants_times            # `time_ns` of a replica that moves is that of the look, if all else is old
    cdef public bint wants_caches           # `cached_blocks`
    cdef public bint wants_tiers            # `tiers_in_turn`, `best_tiers`
    cdef public bint wants_adapters         # `holds_adapter`; and counts, with which it is read
    cdef public bint wants_in_flight        # who got or lost a request, in `changed`, instead of by `sent` and `left`

    # A live look leaves a state as it is where nothing changed, `time_ns` too, unless somebody wants times. Where
    # `is_moving` it was so at `looked_ns` nevertheless: the replica works, and blocks or levels are wanted; or it is a
    # snapshot.
    cdef int64_t looked_ns
    cdef int8_t* is_moving                  # [replica]

    # Replicas of which a seen state, or an account, has changed since `forget_changes`, each once, in no special order.
    # Kept for whoever updates scores as changes come.
    cdef int32_t* changed
    cdef readonly int32_t num_changed
    cdef int8_t* _is_changed

    # Somebody wants more than accounts and caches.
    cdef inline bint wants_states(self) noexcept nogil:
        return self.wants_counts or self.wants_blocks or self.wants_levels

    # Bring `states` up to what can be known at `now_ns`. The engine overrides it; a plain View shows what was put in.
    cdef int look(self, int64_t now_ns) except -1 nogil

    # Leading whole blocks of the text of request `row` that are in the KV cache of a replica, as far as can be known at
    # `now_ns`, in blocks of RoutingContext.block_size tokens. The engine overrides it; a plain View knows of none.
    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil

    # The same of all of them at once, [num_replicas], for who asks of more than one. Valid until the next call.
    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil
    cdef int32_t* cached                    # what it found, unless the engine has found it

    # Is a LoRA adapter loaded at a replica, as far as can be known at `now_ns`? Of no meaning unless `knows_adapters`.
    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil
    cdef readonly bint knows_adapters       # somebody says which are loaded

    # What a tier has of it besides, [medium x num_replicas], see signals/media.pxd and TierHolders: of `media`, bit m:
    # medium m, those that follow where the medium before ends; or all, each at the first medium in `order` that has it.
    # Of who has no tier, and in a plain View, DEVICE alone. Valid until the next call of either.
    cdef readonly bint has_tiers            # somebody has one, and they are wanted; else `cached_everywhere` says all
    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil
    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil
    cdef int32_t* _tiered                   # what a plain View says of that

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
