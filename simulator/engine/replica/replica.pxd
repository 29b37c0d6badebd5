"""One serving instance: it forms a batch, times it, advances and completes it.

Runs of iterations with the same members are taken at once.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.finish_heap cimport FinishHeap
from simulator.domain.request cimport Request
from simulator.domain.tables cimport ReplicaRow
from simulator.engine.replica.acceptance cimport Acceptance
from simulator.engine.replica.delivery cimport Delivery
from simulator.engine.replica.pipeline cimport Pipeline
from simulator.engine.output.recorder cimport Recorder
from simulator.core.row_list cimport RowList
from simulator.engine.replica.run_ahead cimport RunAhead
from simulator.kv.base cimport KVCache
from simulator.latency.base cimport LatencyModel
from simulator.scheduling.base cimport Scheduler
from simulator.domain.iteration cimport Batch, Entry


@cython.final
cdef class Replica:
    cdef readonly Scheduler scheduler
    cdef readonly int32_t index
    cdef readonly int64_t wake_ns           # when it must act next: an iteration ends, or work has come; NEVER_NS: idle
    cdef ReplicaRow row                     # statistics; the cluster adds those that the scheduler keeps
    cdef readonly bint is_halted            # it stands still, see evacuation.pxd; requests that come only wait
    cdef readonly bint is_livelocked        # preempts for ever without sampling; it does not act any more
    cdef readonly bint is_out_of_time       # an iteration would end after the last instant of the clock

    cdef KVCache _kv                        # the scheduler's
    cdef LatencyModel _latency
    cdef Recorder _recorder
    cdef Acceptance _acceptance             # None: no speculation
    cdef Request* _requests
    cdef object _owner                      # the workload, from which _requests borrows
    cdef Delivery _delivery

    cdef Pipeline _pipeline                 # batches that execute or wait to
    cdef Batch* _formed                     # the batch scheduled last, for the observer
    cdef FinishHeap _finish                 # members, by the value of scheduler.iteration at which they are complete
    cdef RunAhead _run                      # iterations with the members of the batch, which is their first
    cdef int32_t* _finished                 # slots that end in the iteration at hand
    cdef int32_t _num_finished
    cdef RowList _aborted                   # rows withdrawn while running; they leave when the iteration ends
    cdef RowList _ends_as                   # the RequestStatus of each
    cdef object _observer                   # .scheduled(replica) and .ended(replica) are called around every iteration;
                                            # None: nobody watches
    cdef int32_t _num_late                  # members with late_ns > 0
    cdef int64_t _fruitless                 # preemptions since a token was sampled

    # Do what is due before `until_ns`, end iterations and begin the next; nothing comes from outside until then. A run
    # may be planned as far as `horizon_ns`.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil

    # A request enters the waiting queue, or is refused; advance(now_ns) came before. Cuts a run at the iteration in
    # progress.
    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request leaves before its end, as its client gave up or the cluster takes it off, with this RequestStatus;
    # advance(now_ns + 1) came before. What waits leaves at once, what runs with the iteration in progress.
    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil

    # Do what a run ahead has brought before `now_ns`: blocks are then where they are at that instant.
    cdef int keep_up(self, int64_t now_ns) except -1 nogil

    # Start of the first iteration that is not recorded yet; NEVER_NS if there is none.
    cdef int64_t first_open_ns(self) noexcept nogil

    # Nothing more will come: write the state of running requests, as of `now_ns`, back to the request table.
    cdef int settle(self, int64_t now_ns) except -1 nogil

    # What needs the GIL.
    cdef int _raise_latency_fault(self) except -1 nogil
    cdef int _observe(self, bint has_ended) except -1 nogil

    # An iteration begins.
    cdef int _begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil
    cdef int _note_preemptions(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef int _note_starvation(self, Batch* batch) except -1 nogil
    cdef int _plan_run(self, Batch* batch, int64_t horizon_ns) except -1 nogil
    cdef int _await_end(self, int32_t slot) except -1 nogil

    # An iteration ends.
    cdef int _complete(self) except -1 nogil
    cdef int _end_iteration(self, Batch* batch) except -1 nogil
    cdef int _end_at_start(self, Batch* batch) except -1 nogil
    cdef int _end_ahead(self, Batch* batch, int32_t count) except -1 nogil
    cdef int _record(self, const Batch* batch) except -1 nogil
    # `ahead`: it is the batch of so many iterations later. `is_in_progress`: clients may have given up while it ran and
    # get no token.
    cdef int _sample_members(self, const Batch* batch, int32_t ahead, bint is_in_progress) except -1 nogil
    cdef int _collect_aborted(self) except -1 nogil
    cdef int _return(self, const Entry* entry, int64_t now_ns) except -1 nogil
    cdef int _free_finished(self) except -1 nogil
    cdef void _complete_request(self, int32_t row, int64_t now_ns) noexcept nogil
