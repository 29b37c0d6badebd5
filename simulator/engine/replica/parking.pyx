"""Sequences that own KV without running: on the way from a replica, or to it."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from simulator.domain.request cimport RUNNING, WAITING
from simulator.scheduling.base cimport Scheduler, Sequence


cdef int32_t reserve(Scheduler scheduler, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil:
    cdef int32_t slot = scheduler.top_slot(), hits
    cdef Sequence* sequence = &scheduler._sequences[slot]
    hits = scheduler.kv.lookup(row, <int32_t>num_computed + 1)
    if not scheduler.kv.allocate(slot, row, hits, num_computed, 0, 0, 0):
        return -1
    scheduler._num_free_slots -= 1
    memset(sequence, 0, sizeof(Sequence))
    sequence.row, sequence.num_tokens = row, <int32_t>num_tokens
    sequence.num_computed = hits * scheduler.kv.block_size
    scheduler._links.push_back(&scheduler._parked, slot)
    scheduler.loading += 1
    scheduler.loading_tokens += num_tokens
    return slot


cdef bint extend(Scheduler scheduler, int32_t slot, int64_t num_tokens, int64_t num_computed) except -1 nogil:
    cdef Sequence* sequence = &scheduler._sequences[slot]
    if not scheduler.kv.allocate(slot, sequence.row, 0, num_computed, 0, 0, 0):
        return False
    scheduler.loading_tokens += num_tokens - sequence.num_tokens
    sequence.num_tokens = <int32_t>num_tokens
    return True


cdef int receive(Scheduler scheduler, int32_t slot, const Sequence* sequence) except -1 nogil:
    cdef Sequence* own = &scheduler._sequences[slot]
    scheduler.loading -= 1
    scheduler.loading_tokens -= own.num_tokens
    own[0] = sequence[0]
    scheduler.kv.cache(slot, own.num_computed)
    unpark(scheduler, slot)
    return 0


cdef int cancel(Scheduler scheduler, int32_t slot) except -1 nogil:
    scheduler.loading -= 1
    scheduler.loading_tokens -= scheduler._sequences[slot].num_tokens
    return release(scheduler, slot)


cdef int park(Scheduler scheduler, int32_t slot) except -1 nogil:
    cdef Sequence* sequence = &scheduler._sequences[slot]
    cdef int32_t row = sequence.row
    if sequence.is_member:
        scheduler._requests[row].output_tokens = scheduler.outputs(slot)
        sequence.num_computed = <int32_t>scheduler.computed(slot)
        scheduler.leave(slot)
    elif scheduler.grouping:
        scheduler._drop_prefilling(slot)
    if scheduler._stale != NULL:
        scheduler._stale[row] = sequence.in_flight
    scheduler._requests[row].status = WAITING
    scheduler._links.remove(&scheduler._running, slot)
    scheduler._links.push_back(&scheduler._parked, slot)
    if scheduler.stale_tokens(row) == 0:
        take_in(scheduler, slot)
    return 0


cdef void take_in(Scheduler scheduler, int32_t slot) noexcept nogil:
    cdef Sequence* sequence = &scheduler._sequences[slot]
    sequence.num_tokens = sequence.prompt_tokens + scheduler._requests[sequence.row].output_tokens
    sequence.num_computed = min(sequence.num_computed, sequence.num_tokens - 1)     # less what was rejected of drafts
    sequence.in_flight = sequence.num_placeholders = sequence.scheduled = sequence.scheduled_drafts = 0
    sequence.late_ns = 0


cdef int release(Scheduler scheduler, int32_t slot) except -1 nogil:
    scheduler.kv.release(slot, False)
    scheduler._links.remove(&scheduler._parked, slot)
    scheduler._sequences[slot].row = -1
    scheduler._free_slots[scheduler._num_free_slots] = slot
    scheduler._num_free_slots += 1
    return 0


cdef void unpark(Scheduler scheduler, int32_t slot) noexcept nogil:
    scheduler._links.remove(&scheduler._parked, slot)
    scheduler._links.push_back(&scheduler._arrived, slot)
    run_arrived(scheduler)


cdef int32_t arrived_slot(Scheduler scheduler, int32_t row) noexcept nogil:
    cdef int32_t slot = scheduler._arrived.head
    while slot >= 0 and scheduler._sequences[slot].row != row:
        slot = scheduler._links.next(slot)
    return slot


cdef void repark(Scheduler scheduler, int32_t slot) noexcept nogil:
    scheduler._links.remove(&scheduler._arrived, slot)
    scheduler._links.push_back(&scheduler._parked, slot)


cdef void run_arrived(Scheduler scheduler) noexcept nogil:
    cdef int32_t slot
    while scheduler._arrived.size > 0 and scheduler._running.size < scheduler.max_running:
        slot = scheduler._links.pop_front(&scheduler._arrived)
        scheduler._sequences[slot].order = scheduler._next_order
        scheduler._next_order += 1
        scheduler._links.push_back(&scheduler._running, slot)
        if scheduler.grouping:
            scheduler._prefilling[scheduler._num_prefilling] = slot
            scheduler._num_prefilling += 1
        scheduler._requests[scheduler._sequences[slot].row].status = RUNNING
