"""Lookahead of replicas behind routers that count requests only."""
from libc.stdint cimport INT32_MAX
from libc.string cimport memset

from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport broken
from simulator.domain.batch cimport BatchShape, clear_shape
from simulator.domain.iteration cimport Batch, Entry
from simulator.engine.replica.pipeline cimport oldest
from simulator.engine.replica.run_ahead cimport iteration_at

cdef enum:
    FEW = 8                     # unfinished prompts, and iterations, that are worth adding up one by one


cdef bint can_lag(Replica replica) noexcept nogil:
    return (replica.lock_step is None and replica.latency.is_monotone and not replica.latency.has_account()
            and foresees_departures(replica.rank.scheduler))


cdef inline bint foresees_departures(Scheduler scheduler) noexcept nogil:
    return (scheduler.grouping and not scheduler.overlaps and not scheduler.ends_at_start
            and scheduler.longest_surely_taken() >= 0)


cdef int prepare(Lookahead* lookahead, Replica replica) except -1:
    memset(lookahead, 0, sizeof(Lookahead))
    lookahead.least_ns = replica.latency.least_ns()
    lookahead.longest_tokens = replica.rank.scheduler.longest_surely_taken()
    lookahead.targets = replica.rank.delivery.targets()
    lookahead.fewest_tokens = INT32_MAX
    lookahead.last_ns = -1
    lookahead.room_tokens = 2 * replica.rank.kv.block_size
    lookahead.spare_tokens = <int64_t>replica.rank.kv.num_blocks * replica.rank.kv.block_size
    return 0


cdef inline int64_t later(int64_t time_ns, int64_t count, int64_t ns) noexcept nogil:
    """Return the instant `count` times `ns` later, at most NEVER_NS."""
    return NEVER_NS if <double>time_ns + <double>count * <double>ns >= 9.2e18 else time_ns + count * ns


cdef bint post(Lookahead* lookahead, int32_t row, int64_t text_tokens, int64_t now_ns, int order,
               int64_t* departs_ns) noexcept nogil:
    cdef Posted* posted = &lookahead.posted[lookahead.num_posted]
    lookahead.spare_tokens -= text_tokens + lookahead.room_tokens
    lookahead.fewest_tokens = min(lookahead.fewest_tokens, lookahead.targets[row])
    if lookahead.num_posted == MOST_POSTED or text_tokens > lookahead.longest_tokens or lookahead.spare_tokens < 0:
        return False
    posted.time_ns, posted.row, posted.order = now_ns, row, order
    lookahead.num_posted += 1
    departs_ns[0] = min(departs_ns[0], later(now_ns, lookahead.fewest_tokens, lookahead.least_ns))
    return True


cdef int take_in(Replica replica, int32_t row, int64_t now_ns, int order) except -1 nogil:
    replica.advance(now_ns, now_ns)
    if order != AHEAD:
        if order == STARTED or replica.pipeline.num_in_flight > 0:
            replica.advance(now_ns + 1, now_ns + 1)
        replica.keep_up(now_ns + 1)
    return replica.enqueue(row, now_ns)


cdef int bring(Lookahead* lookahead, Replica replica, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
    cdef const Posted* posted
    cdef int64_t finished = replica.rank.recorder.finished
    cdef int32_t i
    for i in range(lookahead.num_posted):
        posted = &lookahead.posted[i]
        take_in(replica, posted.row, posted.time_ns, posted.order)
    lookahead.num_posted = 0
    replica.advance(until_ns - 1, horizon_ns)
    if replica.rank.recorder.finished != finished:
        return broken("Lookahead: a request left earlier than was thought possible")
    replica.advance(until_ns, horizon_ns)
    lookahead.reached_ns = until_ns
    return 0


cdef int64_t next_departure_ns(Lookahead* lookahead, Replica replica, Scheduler scheduler) noexcept nogil:
    cdef int64_t departs_ns = NEVER_NS, ends_ns = replica.wake_ns
    cdef int64_t most = replica.rank.next_complete()
    cdef int32_t ahead = 0, length = replica.run.length
    cdef bint is_steady
    if replica.rank.awaits_withdrawals():       # they leave with the iteration in progress, which an arrival at this
        lookahead.spare_tokens = -1             # instant may cut: posting is off
    if ends_ns == NEVER_NS or replica.pipeline.num_in_flight == 0 or replica.rank.awaits_withdrawals():
        return ends_ns
    if scheduler.preemptions != lookahead.preemptions:
        lookahead.preemptions = scheduler.preemptions
        lookahead.fewest_tokens = 1                  # a preempted request may need no more than this
    is_steady = has_room(lookahead, replica, scheduler, most) and scheduler.keeps_turns()
    if length > 1 and (not is_steady or scheduler.waiting.size > 0):
        ahead = iteration_at(&replica.run, lookahead.reached_ns)
        ends_ns = replica.run.ends_ns[ahead]       # of the iteration in progress
    # A decoding sequence gains one token an iteration, so the first is complete after `most`. If all are scheduled
    # in each iteration, arrivals only make iterations longer; the run holds the first iterations.
    if most > 0 and is_steady:
        departs_ns = replica.wake_ns
        if most > length:
            departs_ns = later(
                departs_ns, 1, decoding_ns(replica, scheduler, oldest(&replica.pipeline), most - length))
    elif most > 0:
        departs_ns = later(ends_ns, most - 1 - ahead, lookahead.least_ns)
    if scheduler.waiting.size + scheduler.num_prefilling() == 0:
        lookahead.fewest_tokens = INT32_MAX
        return departs_ns
    # A request that does not decode yet gets its first token at the end of the iteration in progress, at best.
    return min(departs_ns, later(ends_ns, lookahead.fewest_tokens - 1, lookahead.least_ns))


cdef bint has_room(Lookahead* lookahead, Replica replica, Scheduler scheduler, int64_t most) noexcept nogil:
    """Return whether no preemption can occur until the next sequence completes; update the room left."""
    cdef int64_t tokens = scheduler.waiting.tokens
    cdef int32_t i, slot
    if scheduler.num_prefilling() > FEW:
        lookahead.spare_tokens = -1
        return False
    for i in range(scheduler.num_prefilling()):
        slot = scheduler.prefilling_slot(i)
        tokens += scheduler.sequence(slot).num_tokens - scheduler.sequence(slot).num_computed
    lookahead.room_tokens = most + 2 * replica.rank.kv.block_size
    lookahead.spare_tokens = (
        <int64_t>replica.rank.kv.free_blocks * replica.rank.kv.block_size - tokens
        - (scheduler.num_running() + <int64_t>scheduler.waiting.size) * lookahead.room_tokens)
    return lookahead.spare_tokens >= 0


cdef int64_t decoding_ns(Replica replica, Scheduler scheduler, const Batch* batch, int64_t count) noexcept nogil:
    """Return the time of the next `count` iterations without arrivals: all that decode, and prompts that end now."""
    cdef BatchShape shape
    cdef const Entry* entry
    cdef int64_t total_ns = 0, ns = 0
    cdef int32_t i, joined = 0, _
    clear_shape(&shape)
    shape.context_tokens = scheduler.member_tokens - scheduler.num_members      # after the iteration in flight
    for i in range(batch.num_entries if batch.num_entries == scheduler.num_prefilling() else 0):
        entry = &batch.entries[i]
        if entry.is_partial:                        # it may grow, and use the budget of prompts behind it
            break
        joined += 1
        shape.context_tokens += scheduler.sequence(entry.slot).num_computed
    shape.num_sequences = shape.num_decodes = shape.num_samples = scheduler.num_members + joined
    shape.decode_tokens = shape.num_sequences
    for _ in range(<int32_t>min(count, <int64_t>FEW)):
        shape.context_tokens += shape.num_sequences
        ns = replica.latency.iteration_ns(&shape)
        total_ns += ns
    return later(total_ns, max(count - FEW, <int64_t>0), ns)        # later iterations are no shorter
