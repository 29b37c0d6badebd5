"""Requests leave a replica or come to it from another, in the middle of what it does."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport WAITING, Request
from simulator.engine.replica.parking cimport park
from simulator.engine.replica.pipeline cimport oldest
from simulator.engine.replica.replica cimport Replica
from simulator.engine.replica.run_ahead cimport cut_run
from simulator.scheduling.base cimport Sequence


cdef int settle_run(Replica replica, int64_t now_ns) except -1 nogil:
    if replica._run.length > 1:
        replica.wake_ns = cut_run(&replica._run, now_ns)
        replica.keep_up(now_ns)
    return 0


cdef void rouse(Replica replica, int64_t now_ns) noexcept nogil:
    if replica._pipeline.num_in_flight == 0 and replica.wake_ns > now_ns and not replica.is_halted:
        replica.wake_ns = now_ns


cdef int64_t next_end_ns(Replica replica, int64_t now_ns) noexcept nogil:
    if replica.is_halted:
        return NEVER_NS
    return oldest(&replica._pipeline).end_ns if replica._pipeline.num_in_flight > 0 else now_ns


cdef int take_off(Replica replica, int32_t slot) except -1 nogil:
    cdef Sequence* sequence = &replica.scheduler._sequences[slot]
    if sequence.is_member:
        replica._finish.remove(slot)
        replica._delivery.last_token_ns[sequence.row] = replica._pipeline.last_end_ns - sequence.late_ns
        replica._num_late -= sequence.late_ns > 0
        sequence.late_ns = 0
    return park(replica.scheduler, slot)


cdef int64_t settled_tokens(Replica replica, int32_t slot) noexcept nogil:
    cdef const Sequence* sequence = &replica.scheduler._sequences[slot]
    return replica.scheduler.computed(slot) - (0 if sequence.is_member else sequence.in_flight)


cdef int enqueue_again(Replica replica, int32_t row, int64_t now_ns) except -1 nogil:
    cdef Request* request = &replica._requests[row]
    cdef int64_t enqueued_ns = request.enqueued_ns
    settle_run(replica, now_ns)
    if request.scheduled_ns < 0:
        replica.enqueue(row, now_ns)
    else:
        request.status = WAITING
        replica.row.requests += 1
        replica.scheduler.waiting.push_front(row)
        rouse(replica, now_ns)
    if enqueued_ns >= 0:
        request.enqueued_ns = enqueued_ns           # it has been waiting since then
    return 0
