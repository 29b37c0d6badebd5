"""One serving instance: it forms a batch, times it, advances, completes; whole runs of equal iterations at once."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.finish_heap cimport FinishHeap
from simulator.domain.batch cimport BatchShape
from simulator.domain.request cimport Request
from simulator.domain.tables cimport ReplicaRow
from simulator.engine.acceptance cimport Acceptance
from simulator.engine.delivery cimport Delivery
from simulator.engine.recorder cimport Recorder
from simulator.engine.run_ahead cimport RunAhead
from simulator.kv.base cimport KVCache
from simulator.latency.base cimport LatencyModel
from simulator.scheduling.base cimport Scheduler
from simulator.domain.iteration cimport Batch, Entry

cdef enum:
    MAX_IN_FLIGHT = 2           # batches: 1, or 2 under async scheduling


@cython.final
cdef class Replica:
    cdef readonly Scheduler scheduler
    cdef readonly int32_t index
    cdef readonly int64_t wake_ns           # when it must act next: an iteration ends, or work has come; NEVER_NS: idle
    cdef ReplicaRow row                     # statistics
    cdef readonly bint is_livelocked

    cdef KVCache _kv                        # the scheduler's
    cdef LatencyModel _latency
    cdef Recorder _recorder
    cdef Acceptance _acceptance             # None: no speculation
    cdef Request* _requests
    cdef object _owner                      # the workload, from which _requests borrows
    cdef Delivery _delivery

    cdef Batch _batches[MAX_IN_FLIGHT]      # ring of batches that execute or wait to
    cdef Batch* _formed                     # the batch scheduled last
    cdef int32_t _first, _num_in_flight, _max_in_flight
    cdef FinishHeap _finish                 # members, by the iteration in which they end
    cdef RunAhead _run                      # iterations with the members of the batch, which is their first
    cdef int32_t* _finished                 # slots that end in the iteration at hand
    cdef int32_t _num_finished
    cdef int32_t* _aborted                  # rows that timed out while running; they leave when the iteration in progress ends
    cdef int32_t _num_aborted, _room_aborted
    cdef object _observer                   # debug face: .scheduled(replica) and .ended(replica), called around every iteration; or None
    cdef int32_t _num_late                  # members with late_ns > 0
    cdef int64_t _fruitless                 # preemptions since a token was sampled

    # Run every iteration that starts before `until_ns`; nothing will come before. A run may be planned as far as `horizon_ns`.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil

    # A request enters the waiting queue; advance(now_ns) came before. Cuts a run at the iteration in progress.
    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil

    # The client of a request gave up; advance(now_ns + 1) came before.
    cdef int time_out(self, int32_t row, int64_t now_ns) except -1 nogil

    # Start of the first iteration that is not recorded yet; NEVER_NS if there is none.
    cdef int64_t first_open_ns(self) noexcept nogil

    # Write the state of running requests back to the request table.
    cdef void settle(self) noexcept nogil

    cdef int _raise_latency_fault(self) except -1 nogil
    cdef int _observe_scheduled(self) except -1 nogil
    cdef int _observe_ended(self) except -1 nogil
    cdef int _begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil
    cdef int _note_preemptions(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef int _note_starvation(self, Batch* batch) except -1 nogil
    cdef int _plan_run(self, Batch* batch, int64_t horizon_ns) except -1 nogil
    cdef int _complete(self) except -1 nogil
    cdef int _end_iteration(self, Batch* batch) except -1 nogil
    cdef int _end_run(self, Batch* batch) except -1 nogil
    cdef int _record(self, const Batch* batch) except -1 nogil
    cdef int _sample_members(self, const Batch* batch, bint is_in_progress) except -1 nogil
    cdef bint _is_aborted(self, int32_t row) noexcept nogil
    cdef int _collect_aborted(self) except -1 nogil
    cdef int _return(self, const Entry* entry, int64_t now_ns) except -1 nogil
    cdef int _free_finished(self) except -1 nogil
    cdef void _complete_request(self, int32_t row, int64_t now_ns) noexcept nogil
