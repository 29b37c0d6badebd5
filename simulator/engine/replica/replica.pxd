"""One serving instance: a rank that runs requests, and the pipeline on which its batches execute.

A `Replica` has the clock: it times the batches of its rank, and takes runs of iterations with the same members at once.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.domain.batch cimport BatchShape
from simulator.engine.replica.beat cimport Beat
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
    cdef readonly int64_t wake_ns           # when it must act next: an iteration ends, or work has come; NEVER_NS: idle
    cdef readonly Beat beat                 # that of several replicas in lock step; None: it has a clock of its own
    cdef readonly int32_t first_sibling     # index of the first of these, itself without any, and how many there are
    cdef readonly int32_t num_siblings
    cdef readonly bint is_halted            # it stands still, see halt(); requests that come only wait
    cdef readonly int64_t halted_ns         # since when
    cdef readonly bint has_ended            # see end_due(): at wake_ns, and the next iteration has not begun
    cdef readonly bint has_acted            # with a tier that copies: the step formed last is one, though of no tokens
    cdef bint _begins_plainly               # neither in steps with numbers nor with those of a tier that copies
    cdef bint _heeds_arrivals               # see SchedulerFacts; with pipeline stages
    cdef bint _ends_plainly                 # not with those of a tier, and it takes effect then
    cdef bint _counts                       # its latency model is told which iterations execute
    cdef bint _runs_plainly                 # it is not, there is one stage, and no tier copies
    cdef readonly bint is_out_of_time       # an iteration would end after the last instant of the clock
    cdef readonly bint stands_still         # it was to act at one instant for ever, see _note_still
    cdef readonly int64_t still_ns                  # the instant of its last turn without tokens
    cdef readonly int32_t num_still                 # turns without tokens at that instant

    # Shared for reading with what foresees and observes a replica (fleet/lookahead, observation, debug).
    cdef Pipeline pipeline                  # batches that execute or wait to
    cdef RunAhead run                       # iterations with the members of the batch, which is their first
    cdef Rounds rounds                      # with pipeline stages: what else a run consists of
    cdef const Batch* formed                # the batch scheduled last, for the observer

    cdef object _observer                   # .scheduled(replica) and .ended(replica) are called around every iteration,
                                            # .reported(replica) when a tier was asked; None: nobody watches

    # Do what is due before `until_ns`, end iterations and begin the next; nothing comes from outside until then. A run
    # may be planned as far as `horizon_ns`.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil

    # The first half of what is due at `wake_ns`: end an iteration. `advance` does the other half, once those have come
    # who come because of it.
    cdef int end_due(self) except -1 nogil

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

    # End the oldest iteration in flight, if there is one; begin the next.
    cdef int end_oldest(self) except -1 nogil
    cdef int begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil

    # ---- what befalls it from outside. It has been brought up to `now_ns`; whoever calls tells the fleet that it is
    # `touched`.

    # What comes after the iteration in progress is not planned yet.
    cdef void cut(self, int64_t now_ns) noexcept nogil

    # The same; and KV cache and sequences are as of `now_ns`.
    cdef int settle_run(self, int64_t now_ns) except -1 nogil

    # Iterations that begin from now on take as long as this model says.
    cdef int set_latency(self, LatencyModel latency, int64_t now_ns) except -1

    # What was changed may let it go on if it has nothing in flight, or heeds arrivals and has room for another batch.
    cdef void rouse(self, int64_t now_ns) noexcept nogil

    # Something on its way to its blocks, or read from them, is done at `done_ns`: it takes notice when it would.
    cdef void expect(self, int64_t done_ns) noexcept nogil

    # It stands still: an iteration that has not ended before `now_ns` does not end, and requests that come only wait.
    cdef int halt(self, int64_t now_ns) except -1 nogil

    # It goes on where it stood still at `since_ns`: the iterations in flight take longer by the time between.
    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil

    # It stands still and gives up all its requests, see Rank.empty. The iterations in flight come to nothing.
    cdef int evacuate(self, RowList* rows) except -1 nogil

    # Something may be taken off it now, or once the oldest iteration has ended: when that is; NEVER_NS: not until it
    # stands still no more.
    cdef int64_t next_end_ns(self, int64_t now_ns) noexcept nogil

    # Take a sequence off the running list, the last iteration having just ended; it keeps its blocks.
    cdef int take_off(self, int32_t slot) except -1 nogil

    # A request that has been elsewhere, without its KV, enters the waiting queue: in front if it had run.
    cdef int enqueue_again(self, int32_t row, int64_t now_ns) except -1 nogil

    # ---- in lock step with others: what its beat asks, in this order. Each iteration begins with `form` and `start`,
    # under async scheduling with `launch` between them, where its place in the pipeline is taken though it is not known
    # when it executes. A run of iterations is foreseen between `begin_run` and `end_run`.

    # Form the next batch at `now_ns`; False: it has no tokens, and `shape` was not written.
    cdef bint form(self, int64_t now_ns, BatchShape* shape) except -1 nogil

    # Take notice of what has come from other replicas, or is read.
    cdef inline int note_transfers(self, int64_t now_ns) except -1 nogil:
        if self.scheduler.transfers is None or self.scheduler.copies:
            return 0
        self.rank.note_transfers(now_ns)
        return self._tell_of_transfers() if self._observer is not None else 0

    # The batch formed last consists of members alone, or of nothing.
    cdef bint is_steady(self) noexcept nogil

    # Something is in flight, or the batch formed last, of nothing, preempted somebody.
    cdef bint has_moved(self) noexcept nogil

    cdef int launch(self) except -1 nogil

    # What was formed first of that which has not ended executes, padded as this shape of it is.
    cdef int start(self, int64_t begin_ns, int64_t end_ns, const BatchShape* shape) except -1 nogil

    # A step has ended in which it had no tokens.
    cdef void end_dummy(self, int64_t now_ns) noexcept nogil

    # How many iterations the batch in flight may be repeated as it is; without one, for ever. `holds_prefills`: prompts
    # are held in some of them.
    cdef int64_t num_alike(self, bint holds_prefills) noexcept nogil

    cdef int begin_run(self, int64_t most) except -1 nogil
    cdef bint foresee(self, int32_t number) noexcept nogil
    cdef void end_run(self, const RunAhead* common) noexcept nogil

    # Requests that run or wait.
    cdef int32_t num_requests(self) noexcept nogil

    # When all will act next; the run of its own is cut.
    cdef inline void wake_at(self, int64_t time_ns) noexcept nogil:
        self.wake_ns = time_ns

    cdef void cut_own(self, int64_t now_ns) noexcept nogil

    # All stand still, and go on where they stood still at `since_ns`.
    cdef int halt_own(self, int64_t now_ns) except -1 nogil
    cdef int resume_own(self, int64_t since_ns, int64_t now_ns) except -1 nogil

    # Those leave whom the scheduler cannot serve, though nothing executes.
    cdef int _drop_failed(self, int64_t now_ns) except -1 nogil
    cdef int _fill_otherwise(self, int64_t now_ns) except -1 nogil
    cdef int _fill_numbered(self, int64_t now_ns) except -1 nogil
    cdef int _fill_launching(self, int64_t now_ns) except -1 nogil
    cdef int _launch(self, Batch* batch) except -1 nogil
    cdef int _end_otherwise(self, Batch* batch) except -1 nogil
    cdef int _await_step(self, int64_t horizon_ns) except -1 nogil
    cdef int _await_otherwise(self, int64_t horizon_ns) except -1 nogil
    cdef int _end_step(self, Batch* batch) except -1 nogil
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

    # Do what the first iterations of the run, fewer than all, have brought.
    cdef int _end_ahead(self, int32_t count) except -1 nogil
    cdef int _end_ahead_otherwise(self, int32_t count) except -1 nogil
    cdef int _catch_up(self, int32_t count) except -1 nogil
