"""State of a replica as visible to gateways and results, also in the middle of a run."""
from libc.stdint cimport int32_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.iteration cimport Batch
from simulator.domain.replica_state cimport hit_rate_of
from simulator.engine.replica.pipeline cimport Pipeline, batch_at, oldest
from simulator.engine.replica.rounds cimport tokens_of_rounds
from simulator.engine.replica.run_ahead cimport RunAhead, first_using, first_using_others, iteration_at
from simulator.kv.base cimport KVCache
from simulator.scheduling.base cimport Group, Scheduler, Sequence


cdef int observe(Replica replica, int64_t now_ns, ReplicaState* state) except -1 nogil:
    return describe(replica, replica.rank.scheduler, replica.rank.kv, now_ns, state)


cdef int describe(Replica replica, Scheduler scheduler, KVCache kv, int64_t now_ns,
                  ReplicaState* state) except -1 nogil:
    cdef const RunAhead* run = &replica.run
    cdef const Batch* batch = oldest(&replica.pipeline)
    cdef int32_t ended = iteration_at(run, now_ns) if run.length > 1 else 0     # iterations of the run
    state.time_ns = now_ns
    state.iterations = replica.rank.row.iterations + ended + replica.pipeline.num_in_flight
    state.preemptions = scheduler.preemptions
    state.prefix_query_tokens, state.prefix_hit_tokens = scheduler.prefix_query_tokens, scheduler.prefix_hit_tokens
    state.cache_hit_rate = hit_rate_of(state)
    state.waiting = scheduler.waiting.size
    state.running = scheduler.num_running()
    state.waiting_tokens = state.waiting_prefill_tokens = scheduler.waiting.tokens
    state.num_blocks, state.block_size = kv.num_blocks, kv.block_size
    state.max_running = scheduler.max_running
    state.loading, state.loading_tokens = scheduler.loading, scheduler.loading_tokens
    state.used_blocks = run.used_blocks[ended + run.behind] if run.length > 1 else kv.num_blocks - kv.free_blocks
    state.running_tokens = (
        scheduler.member_tokens + <int64_t>(ended - scheduler.num_in_flight) * scheduler.num_members)
    if scheduler.num_groups > 1 and ended > 0:
        state.running_tokens += tokens_of_rounds(&replica.rounds, ended) - <int64_t>ended * scheduler.num_members
    if scheduler.multi_token is not None:
        state.running_tokens = cohort_tokens(replica, scheduler, ended)
    if scheduler.overlaps:
        state.running_tokens += overlapping_tokens(replica, scheduler)
    elif scheduler.num_in_flight > 0:
        state.running_tokens += batch.num_starved       # none of a skipped member is in flight
    add_others(scheduler, state)
    state.running_prefill_tokens = state.unallocated_prefill_tokens
    if replica.pipeline.num_in_flight > 0:
        state.iteration_ns = step_ns(replica, ended) if run.length > 1 else batch.duration_ns
        state.iteration_prefill_tokens = batch.shape.prefill_tokens
        add_scheduled(&replica.pipeline, state)
    return 0


cdef inline int64_t step_ns(Replica replica, int32_t i) noexcept nogil:
    cdef const RunAhead* run = &replica.run
    if replica.pipeline.num_stages > 1:
        return run.ends_ns[i] - replica.rounds.visits[i * replica.pipeline.num_stages].start_ns
    return run.ends_ns[i] - (run.ends_ns[i - 1] if i > 0 else run.start_ns)


cdef int64_t cohort_tokens(Replica replica, Scheduler scheduler, int32_t ended) noexcept nogil:
    """Return the text tokens of a group of multi-token members, without drafts to verify."""
    cdef int64_t tokens = scheduler.member_tokens
    if replica.run.length > 1:
        tokens = replica.run.contexts[ended + replica.run.behind]
    elif scheduler.num_in_flight > scheduler.lead:
        tokens -= scheduler.multi_token.last_advance
    return tokens - <int64_t>((1 + scheduler.lead) * scheduler.turn_tokens - 1) * scheduler.num_members


cdef int64_t overlapping_tokens(Replica replica, Scheduler scheduler) noexcept nogil:
    """Return the tokens of members of other groups, and a correction for members that joined in flight."""
    cdef int64_t tokens = 0
    cdef int32_t i
    cdef Group group
    for i in range(scheduler.num_groups):
        if i != scheduler.group:
            group = scheduler.group_at(i)
            tokens += group.member_tokens - <int64_t>group.num_in_flight * group.num_members
    for i in range(replica.pipeline.num_in_flight if scheduler.lead > 0 else 0):
        tokens += tokens_of_joined(scheduler, batch_at(&replica.pipeline, i))
    return tokens


cdef int64_t tokens_of_joined(Scheduler scheduler, const Batch* batch) noexcept nogil:
    """Return a correction for members that joined with a batch, where one token per iteration in flight was assumed."""
    cdef const Sequence* sequence
    cdef int64_t tokens = 0
    cdef int32_t i
    for i in range(batch.num_entries):
        sequence = scheduler.sequence(batch.entries[i].slot)
        if sequence.is_member and sequence.order == batch.entries[i].order and not batch.entries[i].is_partial:
            tokens += (scheduler.group_at(sequence.group).num_in_flight
                       - scheduler.turns_in_flight(batch.entries[i].slot) - sequence.num_placeholders)
    return tokens


cdef void add_others(Scheduler scheduler, ReplicaState* state) noexcept nogil:
    """Add the texts of sequences that are no members, and their tokens still to be computed before they sample."""
    cdef int32_t i, slot = -1 if scheduler.grouping else scheduler.first_running()
    state.unallocated_prefill_tokens = 0
    for i in range(scheduler.num_prefilling() if scheduler.grouping else 0):
        add_sequence(scheduler.sequence(scheduler.prefilling_slot(i)), state)
    while slot >= 0:
        add_sequence(scheduler.sequence(slot), state)
        slot = scheduler.next_running(slot)


cdef inline void add_sequence(const Sequence* sequence, ReplicaState* state) noexcept nogil:
    state.running_tokens += sequence.num_tokens
    if not sequence.is_decoding and sequence.num_tokens > sequence.num_computed:
        state.unallocated_prefill_tokens += sequence.num_tokens - sequence.num_computed


cdef void add_scheduled(const Pipeline* pipeline, ReplicaState* state) noexcept nogil:
    """Add the prompt tokens of the batches in flight."""
    cdef int32_t i
    for i in range(pipeline.num_in_flight):
        state.running_prefill_tokens += (
            pipeline.batches[(pipeline.first + i) % pipeline.depth].shape.prefill_tokens)


cdef int64_t next_end_ns(Replica replica, int64_t until_ns) noexcept nogil:
    cdef const RunAhead* run = &replica.run
    cdef int32_t ended = iteration_at(run, until_ns) if run.length > 1 else 0
    return run.ends_ns[ended] if ended + 1 < run.length else NEVER_NS       # with the last iteration it acts


cdef int64_t next_blocks_ns(Replica replica, int64_t until_ns) noexcept nogil:
    cdef const RunAhead* run = &replica.run
    cdef int32_t i
    if run.length == 1:
        return NEVER_NS
    i = iteration_at(run, until_ns) + run.behind        # scheduled last
    if replica.rank.kv.is_hybrid:
        return scheduled_ns(run, first_using_others(run, i))
    return scheduled_ns(run, first_using(run, i, run.used_blocks[i] + 1))


cdef int64_t next_cache_change_ns(Replica replica) noexcept nogil:
    return cache_change_ns(&replica.run, replica.rank.kv,
                           replica.rounds.num_turns if replica.pipeline.num_stages > 1 else 1)


cdef int64_t cache_change_ns(const RunAhead* run, KVCache kv, int32_t num_turns) noexcept nogil:
    cdef int32_t last = run.behind, i                   # the iteration scheduled last
    if run.length == 1:
        return NEVER_NS
    if kv.is_hybrid:                                    # blocks may enter and leave it at any time
        return scheduled_ns(run, last + 1)
    # A block is full in the turn before its owner takes the next one, and known then, or with it if in flight.
    if kv.finds_outputs:
        i = first_using(run, last, run.used_blocks[last] + 1)
        i = max(i - num_turns * (1 - kv.unknown_tokens), last + 1)
    else:
        i = first_using(run, last, run.used_blocks[last] + kv.blank_blocks() + 1)
    return scheduled_ns(run, i)


cdef inline int64_t scheduled_ns(const RunAhead* run, int32_t i) noexcept nogil:
    """Return when an iteration of the run that is not scheduled yet will be; NEVER_NS: it is not planned."""
    return run.ends_ns[i - run.behind - 1] if i < run.length + run.behind else NEVER_NS
