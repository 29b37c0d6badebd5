"""What befalls a replica from outside: it stands still, goes on, gives up its requests."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.iteration cimport Batch, StageVisit
from simulator.domain.request cimport WAITING
from simulator.engine.replica.pipeline cimport Pipeline, oldest
from simulator.engine.replica.replica cimport Replica
from simulator.core.row_list cimport RowList, add_row
from simulator.engine.replica.run_ahead cimport cut_run
from simulator.scheduling.base cimport Scheduler, Sequence


cdef void cut(Replica replica, int64_t now_ns) noexcept nogil:
    if replica._run.length > 1:
        replica.wake_ns = cut_run(&replica._run, now_ns)


cdef int halt(Replica replica, int64_t now_ns) except -1 nogil:
    cut(replica, now_ns)
    if replica._run.length > 1:
        replica._end_ahead(oldest(&replica._pipeline), replica._run.length - 1)
    replica.is_halted = True
    replica.wake_ns = NEVER_NS
    return 0


cdef int resume(Replica replica, int64_t since_ns, int64_t now_ns) except -1 nogil:
    cdef Pipeline* pipeline = &replica._pipeline
    cdef int64_t pause_ns = now_ns - since_ns
    cdef int32_t i
    replica.is_halted = False
    for i in range(pipeline.num_in_flight):
        put_off(&pipeline.batches[(pipeline.first + i) % pipeline.depth], since_ns, pause_ns, i == 0)
    if pipeline.num_in_flight > 0:
        if not replica.scheduler.ends_at_start:
            replica.row.busy_ns -= pause_ns     # it will be counted with the oldest batch
        put_off_starved(replica.scheduler, oldest(pipeline), pause_ns)
        replica.wake_ns = oldest(pipeline).end_ns
    elif replica.scheduler.waiting.size + replica.scheduler._running.size > 0:
        replica.wake_ns = now_ns
    return 0


cdef void put_off(Batch* batch, int64_t since_ns, int64_t pause_ns, bint is_executing) noexcept nogil:
    """Let a batch that was in flight at `since_ns` end later."""
    cdef StageVisit* visit
    cdef int32_t i
    batch.end_ns += pause_ns
    if batch.visits == NULL:
        batch.duration_ns += pause_ns if is_executing else 0
        return
    for i in range(batch.num_stages):
        visit = &batch.visits[i]
        visit.start_ns += pause_ns if visit.start_ns >= since_ns else 0
        visit.end_ns += pause_ns if visit.end_ns >= since_ns else 0
    batch.duration_ns = batch.end_ns - batch.visits[0].start_ns


cdef void put_off_starved(Scheduler scheduler, const Batch* batch, int64_t pause_ns) noexcept nogil:
    """Let the pause count in the gaps of members without a turn, who are charged for an iteration when it begins."""
    cdef int32_t slot = scheduler._running.head if batch.num_starved > 0 else -1
    cdef Sequence* sequence
    while slot >= 0:
        sequence = &scheduler._sequences[slot]
        if sequence.is_member and sequence.is_starved:
            sequence.late_ns += pause_ns
        slot = scheduler._links.next(slot)


cdef int evacuate(Replica replica, RowList* rows) except -1 nogil:
    empty(replica, replica.scheduler, rows)
    replica._finish.clear()
    replica._num_late = 0
    replica._fruitless = 0
    replica._pipeline.num_in_flight = 0
    return 0


cdef int empty(Replica replica, Scheduler scheduler, RowList* rows) except -1 nogil:
    """Take all requests off the scheduler, while the batches in flight still tell how far they came."""
    cdef int32_t slot, row
    if replica._pipeline.num_in_flight > 0 and scheduler.grouping:
        scheduler.advance()                     # its blocks are taken: in the books it has ended
    if replica._aborted.size > 0:
        replica._collect_aborted()
    while scheduler._running.size > 0:
        slot = scheduler._running.head
        row = scheduler._sequences[slot].row
        add_row(rows, row)
        if scheduler._sequences[slot].is_member:
            write_back(replica, scheduler, slot)
        replica._requests[row].status = WAITING
        scheduler._vacate(slot, True)
    while scheduler.waiting.size > 0:
        row = scheduler.waiting.pop()
        if scheduler.stale_tokens(row) > 0:
            scheduler.settle_stale(row, scheduler.stale_tokens(row))
        add_row(rows, row)
    return 0


cdef int write_back(Replica replica, Scheduler scheduler, int32_t slot) except -1 nogil:
    """Write down what a member got, and when it got its last token, before the iteration in progress."""
    cdef const Batch* batch = oldest(&replica._pipeline)
    cdef Sequence* sequence = &scheduler._sequences[slot]
    cdef bint is_executing = replica._pipeline.num_in_flight > 0
    cdef bint is_starved = is_executing and batch.num_starved > 0 and sequence.is_starved
    cdef int64_t last_ns = batch.start_ns if is_executing else replica._pipeline.last_end_ns
    replica._requests[sequence.row].output_tokens = scheduler.outputs(slot) - (is_executing and not is_starved)
    replica._delivery.last_token_ns[sequence.row] = (
        last_ns - sequence.late_ns + (batch.duration_ns if is_starved else 0))
    return 0
