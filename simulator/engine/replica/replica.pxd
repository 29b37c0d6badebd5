"""One serving instance: a rank that runs requests, and the pipeline on which its batches execute.

A `Replica` has the clock: it times the batches of its rank, and takes runs of iterations of an unchanged group at once.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.domain.batch cimport BatchShape
from simulator.engine.replica.lock_step_group cimport LockStepGroup
from simulator.engine.replica.pipeline cimport Pipeline, busy_ns
from simulator.engine.replica.rank cimport Rank
from simulator.engine.replica.rounds cimport Rounds
from simulator.engine.replica.run_ahead cimport RunAhead
from simulator.latency.base cimport LatencyModel
from simulator.scheduling.base cimport Scheduler


@cython.final
cdef class Replica:
    cdef readonly Rank rank
    cdef readonly Scheduler scheduler       # the rank's
    cdef readonly int32_t index
    cdef readonly LatencyModel latency
    cdef readonly int64_t wake_ns  # when it must act next: an iteration ends, or a request has arrived; NEVER_NS: idle
    cdef readonly LockStepGroup lock_step   # shared by several replicas in lock step; None: it has a clock of its own
    cdef readonly int32_t first_sibling  # index of the first replica of its group (its own if None); and their number
    cdef readonly int32_t num_siblings
    cdef readonly bint is_halted            # it is halted, see halt(); requests that arrive only wait
    cdef readonly int64_t halted_ns         # when it was halted
    cdef readonly bint has_ended            # see end_due(): at wake_ns, and the next iteration has not begun
    cdef readonly bint has_acted  # with a tier that copies: the step formed last counts, though it has no tokens
    cdef readonly int64_t launch_ns         # in lock step, with a tier that copies: when the step formed last can begin
    cdef int64_t _idle_done[2]              # num_done and num_polled of a step without tokens that is not reported yet
    cdef bint _is_idle                      # there is one
    cdef bint _begins_plainly               # neither in numbered steps nor in steps of a tier that copies
    cdef bint _heeds_arrivals               # see SchedulerFacts; with pipeline stages
    cdef bint _ends_plainly                 # not with those of a tier, and it takes effect then
    cdef bint _counts                       # its latency model is notified of planned iterations that do not execute
    cdef bint _runs_plainly                 # there is one stage, and no tier copies
    cdef bint _plans_plainly                # and neither is it notified
    cdef readonly bint is_out_of_time       # an iteration would end after the last instant of the clock
    cdef readonly bint stands_still         # it had too many turns at one instant, see _note_still
    cdef readonly int64_t still_ns                  # the instant of its last turn without tokens
    cdef readonly int32_t num_still                 # turns without tokens at that instant

    # Read by the code that predicts and observes a replica (fleet/lookahead, observation, debug).
    cdef Pipeline pipeline                  # batches that execute or wait for execution
    cdef RunAhead run                       # iterations that repeat the batch; it is the first
    cdef Rounds rounds                      # with pipeline stages: the further parts of a run
    cdef const Batch* formed                # the batch scheduled last, for the observer

    cdef object _observer                   # .scheduled(replica) and .ended(replica) are called around every iteration,
                                            # .reported(replica) when a tier was polled; None: no observer

    # Do all that is due before `until_ns`: end iterations and begin the next; no outside event occurs until then. A
    # run may be planned up to `horizon_ns`.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil

    # The first half of the work due at `wake_ns`: end an iteration. `advance` does the other half, after the arrivals
    # that this end caused.
    cdef int end_due(self) except -1 nogil

    # A request enters the waiting queue, or is refused; after advance(now_ns). Cuts a run at the iteration in
    # progress.
    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request leaves before its end, as its client gave up or the cluster takes it off, with this RequestStatus;
    # after advance(now_ns + 1). A waiting request leaves at once, a running one with the iteration in progress.
    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil

    # Apply the part of a run before `now_ns`: blocks are then in their state at that instant.
    cdef int keep_up(self, int64_t now_ns) except -1 nogil

    # Return the start of the first iteration that is not recorded yet; NEVER_NS if there is none.
    cdef int64_t first_open_ns(self) noexcept nogil

    # The run is over: write the state of running requests, as of `now_ns`, back to the request table.
    cdef int settle(self, int64_t now_ns) except -1 nogil

    # End the oldest iteration in flight, if there is one; begin the next.
    cdef int end_oldest(self) except -1 nogil
    cdef int begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil

    # ---- outside interventions. The replica has been brought up to `now_ns`; the caller must call Fleet.touched
    # afterwards.

    # Drop the plan after the iteration in progress.
    cdef void cut(self, int64_t now_ns) noexcept nogil

    # The same, and bring KV cache and sequences up to `now_ns`.
    cdef int settle_run(self, int64_t now_ns) except -1 nogil

    # Use this latency model for iterations that begin from now on.
    cdef int set_latency(self, LatencyModel latency, int64_t now_ns) except -1

    # A change may let it go on if it has nothing in flight, or heeds arrivals and has room for another batch.
    cdef void rouse(self, int64_t now_ns) noexcept nogil

    # A transfer to or from its blocks ends at `done_ns`: it notices at its next step, or is woken if it would not.
    cdef void expect(self, int64_t done_ns) noexcept nogil

    # Halt it: an iteration that has not ended before `now_ns` does not end, and requests that arrive only wait.
    cdef int halt(self, int64_t now_ns) except -1 nogil

    # Resume it after a halt at `since_ns`: the iterations in flight take longer by the time between.
    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil

    # Take all requests off while it is halted, see Rank.empty. The iterations in flight are dropped.
    cdef int evacuate(self, RowList* rows) except -1 nogil

    # Return when a request can be taken off: now, or at the end of the oldest iteration; NEVER_NS: not while it is
    # halted.
    cdef int64_t next_end_ns(self, int64_t now_ns) noexcept nogil

    # Take a sequence off the running list, the last iteration having just ended; it keeps its blocks.
    cdef int take_off(self, int32_t slot) except -1 nogil

    # A request from another replica, without its KV, enters the waiting queue: in front if it had run.
    cdef int enqueue_again(self, int32_t row, int64_t now_ns) except -1 nogil

    # ---- in lock step with others: steps of the group, in this order. Each iteration begins with `form` and `start`,
    # under async scheduling with `launch` between them: its place in the pipeline is taken before its time of
    # execution is known. A run of iterations is planned between `begin_run` and `end_run`.

    # Form the next batch at `now_ns`; False: it has no tokens, and `shape` was not written. With a tier that copies, a
    # step without tokens is launched at once; the batch that executes ends at `free_ns`.
    cdef bint form(self, int64_t now_ns, int64_t free_ns, BatchShape* shape) except -1 nogil

    # With a tier that copies: all ranks have formed their batches; this one begins its copies. Sets `launch_ns`.
    cdef int launch_copies(self, int64_t now_ns, int64_t free_ns) except -1 nogil

    # With a tier that copies, while all ranks sleep: execute the steps of the tier that are due.
    cdef int tend_tier(self, int64_t now_ns) except -1 nogil

    # Return until when its steps have no effect but the tokens of a run of iterations.
    cdef int64_t alike_until_ns(self) noexcept nogil

    # Note transfers from other replicas, or reads by them, that have ended.
    cdef inline int note_transfers(self, int64_t now_ns) except -1 nogil:
        if self.scheduler.transfers is None or self.scheduler.copies:
            return 0
        self.rank.note_transfers(now_ns)
        return self._tell_of_transfers() if self._observer is not None else 0

    # Return whether the batch formed last consists of members alone, or is empty.
    cdef bint is_steady(self) noexcept nogil

    # Return whether a batch is in flight, or the batch formed last, though empty, preempted a sequence.
    cdef bint has_moved(self) noexcept nogil

    cdef int launch(self) except -1 nogil

    # Begin the oldest batch that has not ended, padded to this shape.
    cdef int start(self, int64_t begin_ns, int64_t end_ns, const BatchShape* shape) except -1 nogil

    # A step without a batch of its own has ended.
    cdef void end_dummy(self, int64_t now_ns) noexcept nogil

    # Return how many iterations the batch in flight may be repeated unchanged; without one, no limit. `holds_prefills`:
    # prompts are held in some steps.
    cdef int64_t num_alike(self, bint holds_prefills) noexcept nogil

    cdef int begin_run(self, int64_t most) except -1 nogil
    cdef bint foresee(self, int32_t number) noexcept nogil
    cdef void end_run(self, const RunAhead* common) noexcept nogil

    # Return the number of requests that run or wait.
    cdef int32_t num_requests(self) noexcept nogil

    # Set when all replicas of the group act next; cut_own: cut its part of a run.
    cdef inline void wake_at(self, int64_t time_ns) noexcept nogil:
        self.wake_ns = time_ns

    cdef void cut_own(self, int64_t now_ns) noexcept nogil
    cdef inline int64_t _cut_run(self, int64_t now_ns) noexcept nogil
    cdef void _take_back(self, int32_t first) noexcept nogil

    # Halt and resume it with its group, which was halted at `since_ns`.
    cdef int halt_own(self, int64_t now_ns) except -1 nogil
    cdef int resume_own(self, int64_t since_ns, int64_t now_ns) except -1 nogil

    # Requests leave that the scheduler cannot serve, though nothing executes.
    cdef int _drop_failed(self, int64_t now_ns) except -1 nogil
    cdef int _fill_otherwise(self, int64_t now_ns) except -1 nogil
    cdef int _fill_numbered(self, int64_t now_ns) except -1 nogil
    cdef int _fill_launching(self, int64_t now_ns) except -1 nogil
    cdef int _launch(self, Batch* batch) except -1 nogil
    cdef int _end_otherwise(self, Batch* batch) except -1 nogil
    cdef int _await_step(self, int64_t horizon_ns) except -1 nogil
    cdef int _await_otherwise(self, int64_t horizon_ns) except -1 nogil
    cdef int _end_step(self, Batch* batch) except -1 nogil

    # In lock step: launch a step without tokens; report it.
    cdef int _launch_idly(self, Batch* batch, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef int _end_idle(self) except -1 nogil
    cdef inline bint _execute(self, Batch* batch) except -1 nogil
    cdef inline int _await_end(self, int64_t horizon_ns) except -1 nogil
    cdef int _raise_latency_fault(self) except -1 nogil
    cdef int _observe(self, bint has_ended) except -1 nogil
    cdef int _tell_of_transfers(self) except -1 nogil
    cdef inline int _end_iteration(self, Batch* batch) except -1 nogil:
        self.rank.end(batch, busy_ns(&self.pipeline, batch))
        return self._observe(True) if self._observer is not None and batch.shape.num_sequences > 0 else 0

    # Count a turn without tokens. After too many at one instant the replica acts no more; turns with tokens end anyway.
    cdef void _note_still(self, int64_t now_ns) noexcept nogil

    cdef int _end_at_start(self) except -1 nogil
    cdef bint _is_followed(self) noexcept nogil
    cdef bint _has_freed(self) noexcept nogil
    cdef int _plan_run(self, int64_t horizon_ns) except -1 nogil
    cdef int _plan_otherwise(self, int64_t horizon_ns) except -1 nogil
    cdef int _plan_members(self, int64_t horizon_ns) except -1 nogil
    cdef int _plan_rounds(self, int64_t horizon_ns) except -1 nogil
    cdef int _make_room(self, int64_t iterations) except -1 nogil

    cdef void _note_account(self) noexcept nogil

    # Apply the results of the first iterations of the run, fewer than all.
    cdef int _end_ahead(self, int32_t count) except -1 nogil
    cdef int _end_ahead_otherwise(self, int32_t count) except -1 nogil
    cdef int _catch_up(self, int32_t count) except -1 nogil
