"""One scheduler with its KV cache, and the requests that it runs: it forms batches and applies their results.

It has no clock: all times are arguments; the replica that it belongs to has the clock.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.finish_heap cimport FinishHeap
from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch, Entry
from simulator.domain.request cimport Request
from simulator.domain.tables cimport ReplicaRow
from simulator.engine.output.legs cimport LegBook
from simulator.engine.output.recorder cimport Recorder
from simulator.domain.acceptance cimport Acceptance
from simulator.domain.draft_counts cimport DraftCounts
from simulator.engine.replica.delivery cimport Delivery
from simulator.engine.replica.member_tokens cimport Lateness, count_tokens, is_late, write_tokens
from simulator.engine.replica.pipeline cimport Pipeline
from simulator.engine.replica.rounds cimport Rounds
from simulator.engine.replica.run_ahead cimport RunAhead
from simulator.kv.base cimport KVCache
from simulator.scheduling.base cimport Scheduler, Sequence


@cython.final
cdef class Rank:
    cdef readonly Scheduler scheduler
    cdef readonly KVCache kv                # the scheduler's
    cdef readonly Delivery delivery
    cdef readonly Recorder recorder
    cdef readonly FinishHeap finish         # members, by the value of scheduler.iteration at which they are complete
    cdef ReplicaRow row                     # statistics; the cluster adds those that the scheduler keeps
    cdef readonly bint is_livelocked        # requests preempt each other for ever without a token, or:
    cdef readonly bint is_outgrown          # one request that needs more than all blocks restarts for ever

    cdef Acceptance _acceptance             # None: no speculation
    cdef readonly DraftCounts drafts  # None: no speculation. Members' drafts are added when they leave, or by `settle`
    cdef bint _tells_chunks                 # the tier is notified of chunks
    cdef bint _is_multi_token               # members form a multi-token cohort, see Scheduler.multi_token
    cdef bint _is_usual                     # they do not, and one batch at a time is in flight
    cdef LegBook _legs                      # None: a request stays at one replica
    cdef Request* _requests
    cdef object _owner                      # the workload, from which _requests borrows
    cdef RowList _finished                  # slots that end in the iteration at hand
    cdef RowList _aborted                   # rows withdrawn while running; they leave when the iteration ends
    cdef RowList _ends_as                   # the RequestStatus of each row in _aborted
    cdef Lateness _lateness                 # of group members
    cdef int64_t _fruitless                 # preemptions since a token was sampled
    cdef int64_t _pauses_ns                 # taken off busy_ns for the batch that executed when row.iterations was
    cdef int64_t _paused_in                 # equal to this; with _paused_blocks in use
    cdef int32_t _paused_blocks
    cdef int32_t _lone  # preemptions, since the last arrival or completion, of a request with all blocks

    # ---- arrival and departure

    # A request enters the waiting queue; False: it is refused, and has left.
    cdef bint enqueue(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef bint _enqueue(self, int32_t row, int64_t since_ns, int64_t now_ns) except -1 nogil

    cdef bint _is_hemmed_in(self) noexcept nogil

    # The same for a request from another replica, without its KV: it goes in front if it had run.
    cdef bint enqueue_again(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request leaves before its end. False: it waited and has left; True: it runs and leaves with the current
    # iteration.
    cdef bint withdraw(self, int32_t row, int8_t status) except -1 nogil

    # Requests leave that the scheduler cannot serve.
    cdef inline int drop_failed(self) except -1 nogil:
        return self._drop_failed() if self.scheduler.failed.size > 0 else 0

    cdef int _drop_failed(self) except -1 nogil

    # Return whether a withdrawn request leaves with the current iteration.
    cdef inline bint awaits_withdrawals(self) noexcept nogil:
        return self._aborted.size > 0

    # ---- the begin of an iteration

    # Form the next batch at `now_ns`, which is batch.start_ns.
    cdef inline int form(self, Batch* batch, int64_t now_ns) except -1 nogil:
        return self._form(batch, now_ns) if self._is_usual else self._form_unusually(batch, now_ns)

    cdef inline int _form(self, Batch* batch, int64_t now_ns) except -1 nogil:
        self.scheduler.form(batch, now_ns)
        if self._legs is not None:
            self._note_admissions(batch, now_ns)
        return self._note_preemptions(batch, now_ns) if batch.num_preempted > 0 else 0

    # The batch has been timed and will execute.
    cdef inline int start(self, Batch* batch) except -1 nogil:
        batch.waiting, batch.running = self.scheduler.num_waiting(), self.scheduler.num_running()
        batch.used_blocks = self.kv.num_blocks - self.kv.free_blocks
        if batch.num_starved > 0 and not batch.stands_still:
            self._note_starvation(batch)
        if not self._is_usual:
            return self._start_unusually(batch)
        if not batch.stands_still:
            self.scheduler.begin()
        return 0

    # Return how many iterations the batch, of members only, may be repeated unchanged, itself included.
    cdef inline int64_t num_alike(self) noexcept nogil:
        cdef int64_t most = self.next_complete()
        return most if most > 1 and self.scheduler.repeats() else 1

    # ---- the end of an iteration

    # Apply the results of a batch; the accelerator was busy with it for `executed_ns`.
    cdef int end(self, Batch* batch, int64_t executed_ns) except -1 nogil

    # For `ns` no member had a turn, and nothing executed.
    cdef inline void stand(self, int64_t ns) noexcept nogil:
        self._lateness.stood_ns += ns

    # Note loads from the tier, and reads by it, that ended by `now_ns`. Between iterations only.
    cdef inline int note_transfers(self, int64_t now_ns) except -1 nogil:
        if self.scheduler.notes_always or self.scheduler.next_transfer_ns() <= now_ns:
            self.scheduler.note_transfers(now_ns)
        return self.take_seeds(now_ns) if self.scheduler.seeded.size > 0 else 0

    # First tokens that arrived with the KV of held requests reach their clients.
    cdef int take_seeds(self, int64_t now_ns) except -1 nogil

    # The first token of a request, sampled by another replica, reaches its client; True: the request is complete.
    cdef bint take_first(self, int32_t row, int64_t now_ns) except -1 nogil

    # Apply the results of the first iterations of a run, which begins with `batch`; `batch` is void afterwards.
    cdef int end_ahead(self, RunAhead* run, Batch* batch, int32_t count) except -1 nogil

    # The same with alternating groups; the batches in flight are made the next ones. num_rounds_alike: return how many
    # iterations may be taken unchanged, after begin_rounds; 1: only the one that executes.
    cdef int end_rounds(self, RunAhead* run, Rounds* rounds, Pipeline* pipeline, int32_t count) except -1 nogil
    cdef int64_t num_rounds_alike(self, Rounds* rounds, Pipeline* pipeline) noexcept nogil

    # The run is over: write the state of running requests back to the request table.
    cdef int settle(self) except -1 nogil

    # ---- outside interventions; between iterations, or up to the progress of the batches in flight

    # delay: the batch that executes takes longer by `pause_ns`, in which nothing executed. forget_pauses: the batch is
    # dropped, and is not counted, nor are its pauses.
    cdef void delay(self, const Batch* batch, int64_t pause_ns) noexcept nogil
    cdef void forget_pauses(self) noexcept nogil

    # Take all requests off and add them to `rows`: running ones, in order of admission, then waiting ones, in order of
    # the queue. They keep their tokens, WAITING in no queue; their blocks and slots are freed. `executing`: the oldest
    # batch in flight, which is dropped, NULL: there is none; `last_end_ns`: when the one before it ended.
    cdef int empty(self, const Batch* executing, int64_t last_end_ns, RowList* rows) except -1 nogil

    # Its process has ended, and it has no requests: discard all KV, loaded adapters and compiled grammars.
    cdef int forget(self) except -1

    # Park a running sequence, see Scheduler.park; the last iteration ended at `last_end_ns`.
    cdef int take_off(self, int32_t slot, int64_t last_end_ns) except -1 nogil

    # The KV of a parked sequence has arrived from another replica: see Scheduler.receive.
    cdef int receive(self, int32_t slot, const Sequence* sequence, int64_t now_ns) except -1 nogil

    # Return the tokens of a running sequence in KV, without those in batches in flight.
    cdef int64_t settled_tokens(self, int32_t slot) noexcept nogil

    # ---- queries

    # Return the record of a request.
    cdef inline const Request* request(self, int32_t row) noexcept nogil:
        return &self._requests[row]

    # Return the member that completes first; without members, of any slot.
    cdef inline const Sequence* due(self) noexcept nogil:
        return self.scheduler.sequence(self.finish.top_slot() if self.finish.size() > 0 else 0)

    # Return the iterations until the first member is complete, including the one that executes; 0: no members.
    cdef inline int64_t next_complete(self) noexcept nogil:
        return self.finish.top_iteration() - self.scheduler.iteration + 1 if self.finish.size() > 0 else 0

    cdef int _take_rounds(self, const RunAhead* run, Rounds* rounds, Pipeline* pipeline, int32_t count) except -1 nogil
    cdef int64_t _token_before_ns(self, const Rounds* rounds, Pipeline* pipeline, int32_t turn) noexcept nogil
    cdef int _write_rounds(self, const RunAhead* run, const Rounds* rounds, Pipeline* pipeline,
                           int32_t count) except -1 nogil
    cdef void _note_admissions(self, const Batch* batch, int64_t now_ns) noexcept nogil
    cdef int _note_preemptions(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef int _note_starvation(self, Batch* batch) except -1 nogil
    cdef int _await_end(self, int32_t slot) except -1 nogil

    # _form and start for multi-token members or overlapping batches.
    cdef int _form_unusually(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef int _start_unusually(self, Batch* batch) except -1 nogil

    # With multi-token members: _form; a sequence joins them, if it may; a sequence leaves them, and runs on.
    cdef int _form_multi_token(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef int _join_multi_token(self, const Entry* entry, int32_t sampled, int32_t left) except -1 nogil
    cdef int _fall_out(self, int32_t slot, int64_t now_ns) except -1 nogil

    # With overlapping batches: _form; under `lead`, members with their last token in flight part, then members without
    # a turn. _start_ahead: under `lead`, sequences join that sample in the batch, unless it is their last token. _part:
    # a member parts; the last iteration ended at `last_end_ns`. _turn_to: make another group the active one.
    cdef int _form_ahead(self, Batch* batch, int64_t now_ns) except -1 nogil
    cdef void _part_passed_over(self, const Batch* batch) noexcept nogil
    cdef int _start_ahead(self, Batch* batch) except -1 nogil
    cdef void _part(self, int32_t slot, int64_t last_end_ns) noexcept nogil
    cdef void _turn_to(self, int32_t group) noexcept nogil
    cdef inline int _record(self, const Batch* batch, int64_t executed_ns) except -1 nogil:
        self.recorder.iterations += 1
        self.row.iterations += 1
        self.row.busy_ns += executed_ns
        self.row.used_block_ns += <double>batch.used_blocks * <double>executed_ns
        self.row.prefill_tokens += batch.shape.prefill_tokens
        self.row.decode_tokens += batch.shape.decode_tokens
        self.row.peak_used_blocks = max(self.row.peak_used_blocks, batch.used_blocks)
        return self.recorder.iteration(self.row.replica, batch) if self.recorder.wants_iterations else 0

    # Return the gap before a token that the batch brings a member.
    cdef inline int64_t _gap_ns(self, const Batch* batch) noexcept nogil:
        if self.scheduler.num_groups > 1:
            return batch.end_ns - self.scheduler.before_ns + self.delivery.gap_ns
        return batch.duration_ns + self.delivery.gap_ns

    # Count a token, and the gap before it, for each member with a turn: for all at once if none is late.
    # `is_in_progress`: clients may have given up since it began, and get no token.
    cdef inline int _count_members(self, const Batch* batch, bint is_in_progress) except -1 nogil:
        if is_late(&self._lateness) or self._aborted.size > 0:
            return count_tokens(&self._lateness, self.scheduler, self.recorder, self.delivery, batch,
                                self._gap_ns(batch), &self._aborted if is_in_progress else NULL)
        if batch.num_members == 0:
            return 0
        if self.recorder.wants_tokens:
            write_tokens(self.scheduler, self.recorder, self.delivery, &batch.end_ns, 1, 0)
        return self.recorder.gaps.add(self._gap_ns(batch), batch.num_members)

    # An iteration has ended: _count_members, unless the group had no turn.
    cdef inline int _end_turns(self, const Batch* batch) except -1 nogil:
        if batch.stands_still:
            self._lateness.stood_ns += batch.duration_ns
            self.scheduler.end_standing()
        elif self._is_multi_token:
            return self._count_multi_token(&batch.end_ns, batch.end_ns - batch.duration_ns, 1, True)
        else:
            return self._count_members(batch, True)
        return 0

    # Record iterations of a run, each of which is scheduled when the one before begins.
    cdef int _record_overlapping(self, const RunAhead* run, Batch* batch, int32_t count) except -1 nogil

    # _count_members for multi-token members, for `count` iterations that end at `ends_ns`; the first executes since
    # `start_ns`. _write_multi_token: for one member.
    cdef int _count_multi_token(self, const int64_t* ends_ns, int64_t start_ns, int32_t count,
                                bint is_in_progress) except -1 nogil
    cdef int _write_multi_token(self, int32_t slot, const int64_t* ends_ns, int64_t start_ns,
                                int32_t count) except -1 nogil

    cdef int _collect_aborted(self) except -1 nogil
    cdef int _return(self, const Entry* entry, int64_t now_ns) except -1 nogil
    cdef int32_t _accepted(self, const Entry* entry) noexcept nogil
    cdef int _free_finished(self, int64_t now_ns) except -1 nogil
    cdef void _complete_request(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef int _write_back(self, int32_t slot, const Batch* executing, int64_t last_end_ns) except -1 nogil
