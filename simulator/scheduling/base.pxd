"""Base of all schedulers: the contract of a policy, and the state that policies share.

A scheduler owns its waiting queue, its running list and the state of each running request (a Sequence, known by its
slot). The engine calls `schedule` for the next batch, times the batch, and reports its results.

Sequences that decode one token an iteration can be *members* of a group, a bulk-decode cohort: they advance together by
counting iterations, so that an iteration has no cost per member. A sequence joins when its next token will come from
the next iteration to be scheduled, and from then on has a turn in each; it leaves when it is complete, preempted,
withdrawn or moved. Async scheduling forms an iteration before the previous one has ended (`lead`): there a sequence
joins while its first token is in flight. In all the cases above, and when it alone is passed over, it *parts*: its
tokens in flight become entries of their batches, and it is scheduled like any other sequence from then on. It also
parts when its last token is in flight, which the policy may not know. Pipeline stages have one group each: the members
of a group are together in a batch, and again in the next one after that batch returns. One group is active, the one
with the batch that is being formed or has just ended; the fields of the group below are those of the active one, and a
member of another group parts before it leaves. With async scheduling and pipeline stages, sequences have a turn every
`turn_interval` batches, `lead` holds for each group, and the number of a batch determines its group.

Members that verify drafts gain several tokens a turn, see multi_token_cohort.pxd. If a member cannot have a regular
turn, the group dissolves, and each sequence is scheduled individually until its next regular turn has ended.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.domain.acceptance cimport Acceptance
from simulator.domain.draft_counts cimport DraftCounts
from simulator.domain.grammar_drafts cimport GrammarDrafts
from simulator.domain.request cimport RUNNING, Demand, Request
from simulator.kv.base cimport KVCache, blocks_for
from simulator.kv.encoder_cache cimport EncoderCache
from simulator.kv.tier cimport External, KVTier
from simulator.domain.iteration cimport Batch, Entry, grow_batch
from simulator.scheduling.tally cimport Tally
from simulator.scheduling.multi_token_cohort cimport MultiTokenCohort, Turn
from simulator.scheduling.transfers cimport KEEP, LOAD, Transfers
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef enum HoldState:            # state of a sequence that owns blocks for KV from the tier and does not run
    LOADING = 0                 # its KV is on the way
    LOADED = 1                  # its KV has arrived
    GIVEN_UP = 2                # the request has left: the blocks are freed when transfers on the way have ended
    FAILED_LOAD = 3             # its KV will not arrive, and the request is about to leave


cdef struct Sequence:           # 64 bytes, one cache line: with many replicas, most are out of cache at their turn
    int64_t order               # admission stamp: increases along the running list
    int64_t offset              # of a member without drafts: tokens in KV when iteration i is scheduled, less i
    int64_t late_ns             # of a member: age of its last token, less that of the group's last token; see Rank
    int32_t row                 # row of the request; -1: the slot is free
    int32_t prompt_tokens
    int32_t num_tokens          # prompt and outputs so far; of a member: not kept, tokens in KV + 1
    int32_t num_computed        # tokens in KV, including scheduled iterations; of a member: when it joined
    int32_t num_placeholders    # async scheduling: output tokens in flight; of a member: those in entries
    int32_t in_flight           # several batches in flight: tokens scheduled, not returned; of a member: in entries
    int32_t scheduled           # tokens in the batch being formed; of a member: 0 unless scheduled individually
    int16_t num_drafts          # draft tokens held, to be verified in the next iteration
    int16_t scheduled_drafts    # drafts among the scheduled tokens
    int8_t is_member
    int8_t is_decoding          # its text was computed to the end since admission: it has sampled, or will
    int8_t is_partial           # the last scheduled chunk ends before the end of its text
    int8_t is_new               # admitted by the batch being formed
    int8_t is_starved           # of a member, where num_starved > 0: it has no turn in the batch scheduled last
    int8_t hold                 # HoldState of a sequence that does not run
    int16_t group               # group of a member


cdef struct Group:              # a group that is not active; for the fields see Scheduler
    int64_t iteration
    int64_t member_tokens
    int32_t phase
    int32_t num_members
    int32_t num_in_flight
    int64_t ended_ns
    Batch* in_flight[2]


# Sort slots by admission; few sequences end together.
cdef inline void sort_by_order(int32_t* slots, int32_t count, const Sequence* sequences) noexcept nogil:
    cdef int32_t i, j, slot
    for i in range(1, count):
        slot = slots[i]
        j = i
        while j > 0 and sequences[slots[j - 1]].order > sequences[slot].order:
            slots[j] = slots[j - 1]
            j -= 1
        slots[j] = slot


cdef class Scheduler:
    cdef readonly KVCache kv
    cdef readonly WaitingQueue waiting  # created by the policy
    cdef Request* _requests             # borrowed from the workload, like _demands
    cdef const Demand* _demands
    cdef object _owners                 # the arrays that _requests and _demands borrow from
    cdef Sequence* _sequences           # [slot]
    cdef int32_t* _free_slots           # [_num_free_slots] a stack; at first num_slots - 1 .. 0, so that 0 is first
    cdef int32_t _num_free_slots
    cdef readonly int32_t num_slots     # number of slots; grows on demand
    cdef readonly int32_t max_running   # sequences in the running list, at most; set by the policy
    cdef readonly int64_t longest_prompt        # in tokens, set by the policy; a longer one could never sample a token
    cdef IndexLinks _links              # links of the lists of slots below
    cdef IndexList _running             # the running list, in order of admission
    cdef int64_t _next_order            # admission stamp of the next admission
    cdef IndexList _parked              # slots of sequences that own KV and do not run, such as during a KV transfer
    cdef IndexList _arrived             # sequences with arrived KV: they run before others are admitted
    cdef readonly KVTier tier           # KV beyond the blocks; None: there is none
    cdef readonly Transfers transfers   # transfers between tier and blocks; None: there is no tier
    cdef readonly EncoderCache encoder  # encoder of items in prompts; set by the policy. None: encoding costs nothing
    cdef readonly bint copies           # the tier copies blocks, and is notified of each step
    cdef bint _asks_who_joins           # _may_join decides which sequences may become members
    cdef bint _puts_off_frees           # with a tier that copies: blocks written by a batch in flight are freed later
    cdef RowList _put_off               # slots of sequences that have left, freed when the batch in flight has ended
    cdef RowList seeded                 # LOADED slots with a first token from prefill; emptied by the rank
    cdef IndexList _held                # slots of sequences that own blocks for KV from the tier: LOADING or LOADED
    cdef readonly int32_t loading       # sequences, parked or held, with KV on the way to this replica
    cdef readonly int64_t loading_tokens        # tokens of their texts

    cdef bint tells_spread              # batches report the spread of their context lengths, for the latency model
    cdef bint grouping                  # decoding sequences become members; a policy may turn it off
    cdef int64_t iteration              # number of the iteration to be scheduled next
    cdef int32_t num_in_flight          # iterations scheduled and not returned, without those in which all members are
                                        # skipped
    cdef int32_t num_standing           # where batches overlap: iterations in flight in which all members are skipped
    cdef Batch* _in_flight[2]           # [num_in_flight] where batches overlap: batches in flight, newest first
    cdef int32_t lead                   # with grouping: tokens of a member in flight when an iteration is scheduled; 1
                                        # with async scheduling, else 0
    cdef bint overlaps                  # with grouping: a batch may be formed while others are in flight
    cdef int32_t group                  # the active group
    cdef int32_t num_groups             # 1, or one for each pipeline stage
    cdef int32_t turn_interval          # async scheduling with pipeline stages: batches from one turn of a sequence to
                                        # its next, the number of stages; 0: it may have a turn in each batch
    cdef int64_t step                   # with turn_interval: batches formed so far, empty ones included
    cdef int64_t* _eligible             # [row] with turn_interval: first batch in which it may have a turn; else NULL
    cdef int64_t ended_ns               # of several groups: end of the last batch of the active group that has ended
    cdef int64_t before_ns              # time of its members' tokens before that
    cdef Group* _groups                 # [num_groups]; NULL: there is one group
    cdef int32_t phase                  # iteration % kv.num_phases
    cdef int32_t num_members
    cdef int64_t member_tokens          # sum over members of tokens in KV, including the next iteration's
    cdef int64_t _last_member_order     # upper bound of members' orders
    cdef int32_t* _prefilling           # [_num_prefilling] with grouping: running slots that are no members, in order
    cdef int32_t _num_prefilling
    cdef int32_t turn_tokens            # tokens of a member in an iteration: 1, plus drafts
    cdef readonly MultiTokenCohort multi_token  # progress of members that verify drafts; None: one token a turn
    cdef RowList dissolved              # rows that were members before the batch was formed; emptied by the rank

    cdef int32_t prefill_interval       # lockstep ranks compute prompts in each so many-th step; 1: in all
    cdef bint holds_prefills            # the batch formed next computes no prompts while sequences decode, as lockstep
                                        # data-parallel ranks require in some steps; only of `vllm`
    cdef readonly bint ends_at_start    # an iteration's results take effect when it begins; without a group, and with
                                        # one batch in flight
    cdef int64_t pause_ns               # duration of an iteration without tokens; 0: none, -1: as the model prices it
    cdef readonly bint notes_always     # with a tier: `note_transfers` is called before each batch, without exception
    cdef readonly bint tracks_adapters  # it knows which adapters are loaded
    cdef readonly GrammarDrafts grammar_drafts      # decides which drafts are kept; None: all
    cdef Tally tally                    # tally of adapters and grammars in batches; None: not needed
    cdef RowList failed                 # rows that wait and cannot be served, until the next iteration ends
    cdef int64_t opens_ns               # when a request that waits in spite of room, as for a grammar, can be admitted;
                                        # NEVER_NS: none waits so. Set by the policy, at the latest with a batch
    cdef int32_t* _stale                # [row] tokens in flight since before a preemption; NULL: see overlap()

    cdef bint _counts_queries           # prefix caching is on
    cdef readonly int64_t prefix_query_tokens   # tokens looked up at first admissions
    cdef readonly int64_t prefix_hit_tokens     # tokens found at first admissions
    cdef readonly int64_t preemptions

    # ---- the policy: subclasses override these

    # Called when a request arrives: a RequestStatus at or after COMPLETED if it is refused, else PENDING.
    cdef int8_t refusal(self, int32_t row) noexcept nogil

    # A text of up to this number of tokens is never refused. -1: unknown, and the replica must not lag behind
    # (engine/fleet/lookahead). A replica that lags must give each member one token a turn.
    cdef int64_t longest_surely_taken(self) noexcept nogil

    # Form the next batch at `now_ns`. After an empty batch with preemptions it is called again at once; an empty batch
    # without means that nothing can run until something changes.
    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil

    # After a batch of members only: are the next iterations, free blocks permitting, equal to it until a request
    # arrives, finishes or leaves?
    cdef bint repeats(self) noexcept nogil

    # Between iterations: will each member have a turn in every iteration up to its last, whatever arrives, unless a
    # sequence is preempted?
    cdef bint keeps_turns(self) noexcept nogil

    # With turn_interval: does any sequence go on with a token of the batch just formed?
    cdef bint feeds(self, const Batch* batch) noexcept nogil

    # Requests that do not run: in the waiting queue, or held.
    @cython.final
    cdef inline int32_t num_waiting(self) noexcept nogil:
        return self.waiting.size + self._held.size

    # Is a batch without tokens an iteration?
    @cython.final
    cdef inline bint pauses(self, const Batch* batch) noexcept nogil:
        return self.pause_ns != 0 and batch.num_entries + batch.num_preempted + self._running.size > 0

    # Form the next batch, with room for all running sequences; those with arrived KV run before others are admitted.
    @cython.final
    cdef inline int form(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if self._arrived.size > 0:
            self.run_arrived()
        if batch.room < self.num_slots:
            grow_batch(batch, self.num_slots)
        batch.stands_still = False
        self.schedule(batch, now_ns)
        return self._tell_tier(batch) if self.copies else 0

    # Add an arriving request to the waiting queue.
    cdef int enqueue(self, int32_t row) except -1 nogil

    # The process of the replica has ended, and it has no requests: forget adapters that were loaded and grammars that
    # were compiled. The KV cache forgets its own contents.
    cdef void forget(self) noexcept nogil

    # Is a LoRA adapter loaded? For policies with `tracks_adapters`.
    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil

    # An entry returned: append `sampled` tokens to the text, and take back `rejected` of the scheduled drafts.
    # `goes_on`: it sampled, and is not complete.
    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil

    # ---- shared by all: several batches in flight

    # Let batches be scheduled before the previous one has ended, and keep stale tokens. Called while the policy is
    # built, after `grouping` is set; without grouping if there are pipeline stages. `lead`: see the field.
    cdef int overlap(self, int32_t lead, int32_t num_groups) except -1

    # Make a group the active one.
    cdef void turn_to(self, int32_t group) noexcept nogil

    # The group of the next batch: with turn_interval the one of the batch's number, else one without a batch in flight
    # (other such groups have no members). `group_at` returns the state of any group.
    cdef int32_t group_in_turn(self) noexcept nogil
    cdef Group group_at(self, int32_t index) noexcept nogil

    # Tokens of `row` in flight since before a preemption: a policy must not admit it until they are back.
    # `settle_stale` subtracts returned ones.
    @cython.final
    cdef inline int32_t stale_tokens(self, int32_t row) noexcept nogil:
        return self._stale[row] if self._stale != NULL else 0

    @cython.final
    cdef inline void settle_stale(self, int32_t row, int32_t tokens) noexcept nogil:
        self._stale[row] -= tokens

    # ---- shared by all: while a batch is formed

    # The slot of the next admission.
    cdef int32_t top_slot(self) except -1 nogil

    # Append a request with its first `hits` blocks cached to the running list, in top_slot(); return the slot.
    cdef int admit(self, int32_t row, int32_t hits, Batch* batch) except -1 nogil

    # Take a sequence off the running list, to be recomputed later; the policy puts it back into its waiting queue.
    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil

    # Skip a member in this iteration: its later tokens are all delayed by one iteration. Where batches overlap it parts
    # as soon as the batch is formed, even if that is empty.
    cdef int starve(self, int32_t slot) except -1 nogil

    # Skip all members: the group does not advance in this iteration, and does not count it. Like `starve` of each, but
    # in O(1) and without parting. Not allowed with several batches in flight without a group, nor with several groups.
    @cython.final
    cdef inline void pass_over(self, Batch* batch) noexcept nogil:
        batch.num_starved = self.num_members
        batch.stands_still = True

    # Add the `scheduled` tokens of a sequence that is no member to the batch.
    cdef void add_entry(self, Batch* batch, int32_t slot) noexcept nogil

    # The batch is complete: count its tokens as computed and sum up its shape. `drafts`: drafts that the next iteration
    # verifies (async scheduling, which forms it before this one ends); -1: not async.
    cdef void close(self, Batch* batch, int32_t drafts) noexcept nogil
    cdef void _tell_spread(self, Batch* batch) noexcept nogil
    cdef void _take_tally(self, Batch* batch) noexcept nogil

    # ---- shared by all: when an iteration begins and ends

    # An iteration begins (also where batches overlap; also of a multi-token cohort); an iteration has ended.
    @cython.final
    cdef inline void begin(self) noexcept nogil:
        self.iteration += 1
        self.phase = self.phase + 1 if self.phase + 1 < self.kv.num_phases else 0
        self.member_tokens += self.num_members
        self.num_in_flight += 1

    @cython.final
    cdef inline void begin_ahead(self, Batch* batch) noexcept nogil:
        if batch.stands_still:
            self.num_standing += 1
            return
        self.begin()
        self._in_flight[1] = self._in_flight[0]
        self._in_flight[0] = batch

    @cython.final
    cdef inline void end(self) noexcept nogil:
        self.num_in_flight -= 1

    @cython.final
    cdef inline void end_standing(self) noexcept nogil:
        self.num_standing -= self.overlaps

    @cython.final
    cdef inline void begin_multi_token(self) noexcept nogil:
        self.member_tokens += self.multi_token.begin(self.phase) - self.num_members
        self.begin()

    # Discard the iterations in flight.
    @cython.final
    cdef inline void forget_flight(self) noexcept nogil:
        cdef int32_t i
        self.num_in_flight = self.num_standing = 0
        for i in range(self.num_groups if self._groups != NULL else 0):
            self._groups[i].num_in_flight = 0

    # The oldest iteration has ended and an equal one was scheduled, `count` times.
    cdef int repeat(self, int32_t count) except -1 nogil

    # For one of several groups: batches have ended, the last at `ended_ns`, and others were scheduled, blocks aside;
    # then `fly` for each batch that is in flight now, oldest first.
    cdef void repeat_of(self, int32_t group, int32_t num_ended, int32_t num_formed, int64_t ended_ns) noexcept nogil
    cdef void fly(self, Batch* batch) noexcept nogil

    # `join`: a sequence that has just sampled, or with `lead` will sample, becomes a member. `leave`, `part`: it is no
    # member any more. `may_join`: are its turns alike from now on? With `lead`, not with several tokens in flight.
    @cython.final
    cdef inline bint may_join(self, const Entry* entry) noexcept nogil:
        return not self._asks_who_joins or self._may_join(entry)

    cdef int join(self, int32_t slot) except -1 nogil
    cdef void leave(self, int32_t slot) noexcept nogil
    cdef void part(self, int32_t slot) noexcept nogil

    # Members verify drafts, accepted by `acceptance`; called if `turn_tokens` > 1, before any request arrives. `counts`
    # is updated when members leave.
    cdef int verify_by(self, Acceptance acceptance, DraftCounts counts) except -1

    # With drafts: make a sequence a member if its last turn, which brought `sampled` tokens, was regular and the next
    # one is; `left`: tokens until it is complete. Return the first iteration in which it is no member; -1: it is none.
    cdef int64_t join_multi_token(self, const Entry* entry, int32_t sampled, int32_t left) except -2 nogil

    # With drafts, in place of `computed`, `repeat` and `leave`. `fall_out`: a member leaves the group, and runs on.
    cdef int64_t computed_multi_token(self, int32_t slot) noexcept nogil
    cdef int repeat_multi_token(self, int32_t count) except -1 nogil
    cdef void leave_multi_token(self, int32_t slot) noexcept nogil
    cdef int fall_out(self, int32_t slot) except -1 nogil

    # The run is over: count the accepted drafts of a member up to now.
    cdef void count_multi_token(self, int32_t slot) noexcept nogil

    # A sequence is complete: free its blocks and its slot. `sort_finished`: order in which several are finished.
    cdef int finish(self, int32_t slot) except -1 nogil
    cdef void sort_finished(self, int32_t* slots, int32_t count) noexcept nogil

    # Free a sequence that is withdrawn while a following batch may contain it.
    cdef int abort(self, int32_t slot) except -1 nogil

    # ---- shared by all: sequences that own KV without running, during a KV transfer from or to the replica. A parked
    # sequence is in no batch that is formed.

    # Reserve blocks for the first `num_computed` tokens of a text of `num_tokens`, to arrive from elsewhere unless
    # cached. Return the slot, or -1 if there is no room, with nothing changed.
    cdef int32_t reserve(self, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil

    # Extend a reservation for a text that has grown; return False if there is no room.
    cdef bint extend(self, int32_t slot, int64_t num_tokens, int64_t num_computed) except -1 nogil

    # The KV has arrived: the sequence resumes like `sequence`, parked elsewhere, as soon as max_running allows.
    cdef int receive(self, int32_t slot, const Sequence* sequence) except -1 nogil

    # The KV will not arrive: free the reservation.
    cdef int cancel(self, int32_t slot) except -1 nogil

    # Take a sequence off the running list, with status WAITING; it keeps its blocks. With members, only between
    # iterations. Tokens in flight stay in flight, see stale_tokens.
    cdef int park(self, int32_t slot) except -1 nogil

    # All tokens in flight of a parked sequence are back: count them as its own.
    cdef void settle_parked(self, int32_t slot) noexcept nogil

    # A parked sequence has left: free its blocks. `unpark`: it has not, and will run again.
    cdef int release_parked(self, int32_t slot) except -1 nogil
    cdef void unpark(self, int32_t slot) noexcept nogil

    # The slot of a request with arrived KV that does not run yet; -1: there is none.
    cdef int32_t arrived_slot(self, int32_t row) noexcept nogil

    # Number of sequences with arrived KV; the request that arrived last, -1: none; remove a request.
    @cython.final
    cdef inline int32_t num_arrived(self) noexcept nogil:
        return self._arrived.size

    @cython.final
    cdef inline int32_t last_arrived(self) noexcept nogil:
        return self._sequences[self._arrived.tail].row if self._arrived.size > 0 else -1

    cdef int drop_arrived(self, int32_t row) except -1 nogil

    # Run sequences with arrived KV, as far as max_running allows.
    cdef void run_arrived(self) noexcept nogil

    # ---- shared by all: a tier beyond the blocks. A request that waits for KV from the tier is held: it has a slot and
    # its blocks, and is not in `waiting`; the policy admits it like other requests.

    # Hold a request with its first `hits` blocks cached and blocks in top_slot() for the tokens `found` in the tier:
    # behind other held requests, or in the order of the waiting queue.
    cdef int hold(self, int32_t row, int32_t hits, External found, int64_t now_ns) except -1 nogil

    # Start a sequence just admitted behind tokens that the tier loads within the iteration.
    cdef int load_now(self, int32_t slot, External found, int64_t now_ns) except -1 nogil

    # The cached tokens among the `num_computed` with which a request begins, without loaded ones: whole blocks. If a
    # whole text was loaded, its last token is recomputed.
    @cython.final
    cdef inline int32_t found_tokens(self, int32_t row, int32_t num_computed) noexcept nogil:
        if self.tier is None:
            return num_computed
        num_computed = max(num_computed - <int32_t>self.tier.loaded_tokens(row), 0)
        return blocks_for(num_computed, self.kv.block_size) * self.kv.block_size

    # Held sequences, in order: `first_held`, then `next_running` until it is negative.
    @cython.final
    cdef inline int32_t first_held(self) noexcept nogil:
        return self._held.head

    @cython.final
    cdef inline int32_t num_held(self) noexcept nogil:
        return self._held.size

    # Publish the KV of a LOADED sequence: its blocks enter the prefix cache. The last token of its text is computed in
    # any case.
    cdef int settle_held(self, int32_t slot) except -1 nogil

    # Append a LOADED sequence to the running list.
    cdef int run_held(self, int32_t slot, Batch* batch) except -1 nogil

    # Append the token that arrived with the KV of a held sequence to its text: it goes on as a decode.
    @cython.final
    cdef inline void take_token(self, int32_t slot) noexcept nogil:
        self._sequences[slot].num_tokens += 1
        self._sequences[slot].is_decoding = True
        self.loading_tokens += 1

    # Run a parked sequence after its KV has arrived; see reserve().
    cdef int run_parked(self, int32_t slot, Batch* batch) except -1 nogil

    # Remove a held request; return False if it is not held. KV on the way to this replica still arrives.
    cdef bint drop_held(self, int32_t row) except -1 nogil

    # Remove all held requests, and add them to `rows`; free blocks that the tier still reads.
    cdef int drop_all_held(self, RowList* rows) except -1 nogil

    # A running sequence is complete: if the tier reads its blocks, take it off the running list and return True.
    @cython.final
    cdef inline bint keep(self, int32_t slot, int64_t now_ns) except -1 nogil:
        return self.tier is not None and self._keep(slot, now_ns)

    cdef bint _keep(self, int32_t slot, int64_t now_ns) except -1 nogil

    # Process transfers that have ended by `now_ns`, between iterations.
    cdef int note_transfers(self, int64_t now_ns) except -1 nogil

    # Set the end of a transfer to the blocks of a slot, or of a read from them, by the component that did not know it
    # before.
    @cython.final
    cdef inline int comes_at(self, int32_t slot, int64_t done_ns) except -1 nogil:
        return self.transfers.begin(LOAD, slot, done_ns)

    @cython.final
    cdef inline int is_read_at(self, int32_t slot, int64_t done_ns) except -1 nogil:
        return self.transfers.begin(KEEP, slot, done_ns)

    # The end of the next transfer; NEVER_NS: none is in progress.
    @cython.final
    cdef inline int64_t next_transfer_ns(self) noexcept nogil:
        return self._next_transfer_ns() if self.transfers is not None else NEVER_NS

    # When a batch may become possible though none ends before: KV arrives, or the head of the queue may be admitted.
    @cython.final
    cdef inline int64_t awaited_ns(self) noexcept nogil:
        return min(self.next_transfer_ns(), self.opens_ns)

    # With a tier that copies: until when steps have no effect but their tokens, and the tier needs no notice of each;
    # 0: the next step has others.
    cdef int64_t quiet_until_ns(self) noexcept nogil

    # With a tier that copies: `_tell_tier` notifies it of the step just formed. `end_step`: a step has ended, and its
    # batch, if any, has been processed; process transfers that had ended when the step was launched.
    cdef int _tell_tier(self, Batch* batch) except -1 nogil
    cdef int end_step(self, const Batch* batch) except -1 nogil

    @cython.final
    cdef inline int free_put_off(self) except -1 nogil:
        return self._free_put_off() if self._put_off.size > 0 else 0

    # Remove a request that holds no blocks.
    @cython.final
    cdef inline int gives_up(self, int32_t row) except -1 nogil:
        if self.tier is not None:
            self.kv.gives_up(row)
            self.tier.gives_up(row)
        return 0

    # Is a sequence in a batch in flight?
    @cython.final
    cdef inline bint is_in_flight(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        return sequence.in_flight > 0 or (sequence.is_member and self.turns_in_flight(slot) > 0)

    # Take a running sequence off for good, to be recomputed elsewhere.
    cdef int drop(self, int32_t slot) except -1 nogil

    # ---- shared by all: queries

    # The state of a sequence, shared with the rank that runs it, which writes late_ns, is_starved and in_flight.
    @cython.final
    cdef inline Sequence* sequence(self, int32_t slot) noexcept nogil:
        return &self._sequences[slot]

    # The running list, in order of admission: `first_running`, then `next_running` until it is negative.
    @cython.final
    cdef inline int32_t first_running(self) noexcept nogil:
        return self._running.head

    @cython.final
    cdef inline int32_t next_running(self, int32_t slot) noexcept nogil:
        return self._links.next(slot)

    @cython.final
    cdef inline int32_t num_running(self) noexcept nogil:
        return self._running.size

    # With grouping: running slots that are no members, in order of admission.
    @cython.final
    cdef inline int32_t num_prefilling(self) noexcept nogil:
        return self._num_prefilling

    @cython.final
    cdef inline int32_t prefilling_slot(self, int32_t i) noexcept nogil:
        return self._prefilling[i]

    # Tokens in KV, of a member or not.
    cdef int64_t computed(self, int32_t slot) noexcept nogil

    # Tokens in KV that no iteration in flight is computing; valid while a batch is formed.
    @cython.final
    cdef inline int64_t settled(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t tokens = self.computed(slot) - sequence.in_flight
        if sequence.is_member and self.overlaps:
            tokens -= self.turns_in_flight(slot) * self.turn_tokens
        return tokens

    # Tokens that a member has generated so far, without those in flight.
    @cython.final
    cdef inline int32_t outputs(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        return (<int32_t>(self.computed(slot) + 1) - sequence.prompt_tokens - sequence.num_placeholders
                - self.turns_in_flight(slot) * self.turn_tokens)

    # Turns of a member in iterations in flight: one in each, or in each since it joined while its entry is in flight.
    @cython.final
    cdef inline int32_t turns_in_flight(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t iteration = self.iteration
        cdef int32_t num_in_flight = self.num_in_flight
        if sequence.group != self.group:
            iteration = self._groups[sequence.group].iteration
            num_in_flight = self._groups[sequence.group].num_in_flight
        if sequence.num_placeholders == 0:
            return num_in_flight - sequence.is_starved
        return <int32_t>(iteration + sequence.offset - sequence.num_computed)

    # Where batches overlap: the time of a member's last token, if the last iteration ended at `last_end_ns`.
    cdef int64_t last_token_ns(self, int32_t slot, int64_t last_end_ns) noexcept nogil

    # The time of the tokens of a batch's members before it, without turn_interval.
    @cython.final
    cdef inline int64_t token_before_ns(self, const Batch* batch) noexcept nogil:
        return batch.end_ns - batch.duration_ns if self.lead > 0 else batch.start_ns

    # Of several groups: the oldest batch of the active group has ended.
    @cython.final
    cdef inline void note_end(self, const Batch* batch) noexcept nogil:
        self.before_ns = self.ended_ns if self.turn_interval > 0 else batch.start_ns
        self.ended_ns = batch.end_ns

    # The slot of a request; -1: it is not running. O(running).
    cdef int32_t slot_of(self, int32_t row) noexcept nogil

    # The phase (see kv/base.pxd) of a member with this offset.
    cdef int32_t _phase_of(self, int64_t offset) noexcept nogil

    @cython.final
    cdef inline int32_t _occupy(self, int32_t row) noexcept nogil:
        self._num_free_slots -= 1
        cdef int32_t slot = self._free_slots[self._num_free_slots]
        cdef Sequence* sequence = &self._sequences[slot]
        memset(sequence, 0, sizeof(Sequence))
        sequence.row = row
        sequence.prompt_tokens = self._requests[row].prompt_tokens
        sequence.num_tokens = sequence.prompt_tokens + self._requests[row].output_tokens
        return slot

    @cython.final
    cdef inline int _append(self, int32_t slot, Batch* batch) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef Request* request = &self._requests[sequence.row]
        if batch.room < self.num_slots:
            grow_batch(batch, self.num_slots)
        sequence.order = self._next_order
        sequence.is_new = True
        self._next_order += 1
        self._links.push_back(&self._running, slot)
        if self.grouping:
            self._prefilling[self._num_prefilling] = slot
            self._num_prefilling += 1
        request.status = RUNNING
        if self.tier is not None and self.tier.hears_of_chunks:
            self.tier.was_admitted(sequence.row)
        if request.scheduled_ns < 0:
            request.scheduled_ns = batch.start_ns
            request.cached_tokens = min(sequence.num_computed, request.prompt_tokens)
            self.prefix_query_tokens += sequence.num_tokens if self._counts_queries else 0
            self.prefix_hit_tokens += self.found_tokens(sequence.row, sequence.num_computed)
        return 0

    @cython.final
    cdef inline void _stop(self, int32_t slot) noexcept nogil:
        if self.overlaps:
            self._part_in_flight(slot)
        if self.encoder is not None:
            self.encoder.let_go(self._sequences[slot].row)
        if self._sequences[slot].is_member:
            self.leave(slot)
        elif self.grouping:
            self._drop_prefilling(slot)
        self._links.remove(&self._running, slot)

    cdef void _part_in_flight(self, int32_t slot) noexcept nogil
    cdef void _occupy_parked(self, int32_t slot, int32_t row, int64_t num_tokens, int64_t num_computed) noexcept nogil
    cdef void _queue_held(self, int32_t slot) noexcept nogil
    cdef void _unhold(self, int32_t slot) noexcept nogil
    cdef int _arrive(self, int32_t slot, bint is_load) except -1 nogil
    cdef int64_t _next_transfer_ns(self) noexcept nogil
    cdef int _end_load(self, int32_t slot) except -1 nogil
    cdef int _leave_tier(self, int32_t slot) except -1 nogil
    cdef bint _may_join(self, const Entry* entry) noexcept nogil
    cdef int _leave_copying(self, int32_t slot, bint is_aborted) except -1 nogil
    cdef int _give_back_parked(self, int32_t slot) noexcept nogil
    cdef int _put_off_free(self, int32_t slot) except -1 nogil
    cdef int _free_put_off(self) except -1 nogil
    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil
    cdef void _add_prefilling(self, int32_t slot) noexcept nogil
    cdef void _drop_prefilling(self, int32_t slot) noexcept nogil
    cdef int _grow(self) except -1 nogil
