"""Which requests run next inside a replica: what schedulers share and are asked.

A scheduler owns its waiting queue, its running list and the state of each running request (a Sequence, known by its
slot). The engine asks `schedule` for the next batch, times it, and tells what came of it.

Sequences that decode one token an iteration can be *members* of the group: they advance together by counting
iterations, so that an iteration costs nothing per member. One joins when its next token comes from the next iteration
to be scheduled, and from then on has a turn in each; it leaves when it is complete, preempted, withdrawn or moved.
Async scheduling forms an iteration before the one before it has ended (`lead`): there a sequence joins while its first
token is in flight. It *parts*, in all these cases and when it is passed over and others are not: its tokens in flight
become entries of the batches that they are in, and it is scheduled as any other sequence from then on; so too when its
last token is in flight, which the policy may not know. With pipeline stages there are as many groups: the members of
one are together in a batch, and in the next when that is back, each group on its own beat. One is at hand, the one
whose batch is formed or has ended, and all that is said of the group concerns it; a member of another parts likewise.
With both, sequences have a turn every `stride` batches, `lead` holds for each group, and the number of a batch says
whose it is.

Members that verify drafts *stride*: they gain several tokens a turn, see strides.pxd. Where something is out of the
ordinary the group dissolves, and each sequence is scheduled by itself until its next regular turn has ended.
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
from simulator.scheduling.strides cimport Strides, Turn
from simulator.scheduling.transfers cimport KEEP, LOAD, Transfers
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef enum HoldState:            # of a sequence that owns blocks for KV from the tier and does not run
    LOADING = 0                 # it is on the way
    LOADED = 1                  # it has come
    GIVEN_UP = 2                # the request has left: the blocks are free when what is on the way has come
    FAILED_LOAD = 3             # it does not come, and the request is about to leave


cdef struct Sequence:           # 64 bytes, one cache line: with many replicas, most are far away when their turn comes
    int64_t order               # admission stamp: increases along the running list
    int64_t offset              # of a member that does not stride: tokens in KV when iteration i is scheduled, less i
    int64_t late_ns             # of a member: so much longer ago than that of the group is its last token, see Rank
    int32_t row                 # the request; -1: the slot is free
    int32_t prompt_tokens
    int32_t num_tokens          # prompt and outputs so far; of a member: not kept, tokens in KV + 1
    int32_t num_computed        # tokens in KV, those of scheduled iterations included; of a member: when it joined
    int32_t num_placeholders    # async scheduling: output tokens still in flight; of a member: those of entries
    int32_t in_flight           # several batches in flight: tokens scheduled and not returned; of a member: likewise
    int32_t scheduled           # tokens in the batch being formed; of a member: 0 unless visited by itself
    int16_t num_drafts          # draft tokens held, to be verified in the next iteration
    int16_t scheduled_drafts    # of the scheduled tokens, drafts
    int8_t is_member
    int8_t is_decoding          # was computed to the end of its text since it was admitted: has sampled, or will
    int8_t is_partial           # the last scheduled chunk ends before the end of its text
    int8_t is_new               # admitted by the batch being formed
    int8_t is_starved           # of a member, where num_starved > 0: it has no turn in the batch scheduled last
    int8_t hold                 # HoldState, of one that does not run
    int16_t group               # of a member: which one


cdef struct Group:              # of several, one that is not at hand; the fields are those of Scheduler
    int64_t iteration
    int64_t member_tokens
    int32_t phase
    int32_t num_members
    int32_t num_in_flight
    int64_t ended_ns
    Batch* in_flight[2]


# Sort slots by admission; few end together.
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
    cdef object _owners                 # the arrays these pointers borrow from
    cdef Sequence* _sequences           # [slot]
    cdef int32_t* _free_slots           # [_num_free_slots] a stack; num_slots - 1 .. 0 at first, so that 0 goes first
    cdef int32_t _num_free_slots
    cdef readonly int32_t num_slots     # slots there are; grows with need
    cdef readonly int32_t max_running   # sequences in the running list, at most; set by the policy
    cdef readonly int64_t longest_prompt        # in tokens, set by the policy; a longer one could never sample a token
    cdef IndexLinks _links              # of slots, in
    cdef IndexList _running             # the running list, in order of admission
    cdef int64_t _next_order            # that the next admission gets
    cdef IndexList _parked              # slots of sequences that own KV and do not run: on the way from here or to here
    cdef IndexList _arrived             # of sequences whose KV has come: they run before anything else is admitted
    cdef readonly KVTier tier           # KV beyond the blocks; None: there is none
    cdef readonly Transfers transfers   # between it and the blocks; None: likewise
    cdef readonly EncoderCache encoder  # of items in prompts; set by the policy. None: nothing is paid for them
    cdef readonly bint copies           # the tier copies blocks, and is told of each step
    cdef bint _asks_who_joins           # not everybody may become a member at once
    cdef bint _puts_off_frees           # likewise, and a batch may be in flight: blocks that it writes are freed later
    cdef RowList _put_off               # slots of sequences that have left, free when the batch in flight has ended
    cdef RowList seeded                 # slots of LOADED ones, a token came with the KV; emptied by the rank
    cdef IndexList _held                # slots of sequences that own blocks for KV from the tier: LOADING or LOADED
    cdef readonly int32_t loading       # sequences, parked or held, whose KV is on the way to here
    cdef readonly int64_t loading_tokens        # of their texts

    cdef bint tells_spread              # batches tell how far their contexts lie apart: the latency model prices it
    cdef bint grouping                  # decoding sequences become members; a policy may turn it off
    cdef int64_t iteration              # number of the iteration to be scheduled next
    cdef int32_t num_in_flight          # iterations scheduled whose results are not back; none that the group stands
                                        # still for
    cdef int32_t num_standing           # where batches overlap: those
    cdef Batch* _in_flight[2]           # [num_in_flight] where batches overlap: theirs, newest first
    cdef int32_t lead                   # with grouping: tokens of a member in flight when an iteration is scheduled; 1
                                        # with async scheduling, else 0
    cdef bint overlaps                  # with grouping: a batch may be formed while others are in flight
    cdef int32_t group                  # the one at hand
    cdef int32_t num_groups             # 1, or one for each pipeline stage
    cdef int32_t stride                 # async scheduling with pipeline stages: batches from one turn of a sequence to
                                        # its next, one for each stage; 0: it may have one in each
    cdef int64_t step                   # with stride: batches formed so far, those of nothing included
    cdef int64_t* _eligible             # [row] with stride: the batch from which on it may have a turn; NULL without
    cdef int64_t ended_ns               # of several groups: when the batch of the group that ended last did
    cdef int64_t before_ns              # when its members had their token before that
    cdef Group* _groups                 # [num_groups]; NULL: there is one
    cdef int32_t phase                  # iteration % kv.num_phases
    cdef int32_t num_members
    cdef int64_t member_tokens          # sum over members of tokens in KV once the next iteration is scheduled, too
    cdef int64_t _last_member_order     # no member has a larger one
    cdef int32_t* _prefilling           # [_num_prefilling] with grouping: slots that run and are no members, in order
    cdef int32_t _num_prefilling
    cdef int32_t turn_tokens            # of a member in an iteration: 1, and drafts
    cdef readonly Strides strides       # what turns of members bring; None: a token each
    cdef RowList dissolved              # rows that were members until the batch was formed; emptied by the rank

    cdef bint holds_prefills            # while others decode, no prompts are computed in the batch formed next, which
                                        # ranks in lock step want in some steps; of `vllm` alone
    cdef readonly bint ends_at_start    # what an iteration brings takes effect when it begins; without a group, and
                                        # with one batch in flight
    cdef int64_t pause_ns               # of an iteration without tokens; 0: there is none, -1: as the model prices it
    cdef readonly bint notes_always     # with a tier: `note_transfers` is asked before each batch, come what may
    cdef readonly bint tracks_adapters  # it says which adapters are loaded
    cdef readonly GrammarDrafts grammar_drafts      # which drafts are kept; None: all
    cdef Tally tally                    # of adapters and grammars in batches; None: nobody asks
    cdef RowList failed                 # rows that wait and cannot be served, until the next iteration ends
    cdef int64_t opens_ns               # when one who waits, though there is room, need not any more; NEVER_NS: nobody
                                        # does. Kept by the policy, at the latest when it has formed a batch
    cdef int32_t* _stale                # [row] tokens still in flight from before a preemption; NULL: see overlap()

    cdef bint _counts_queries           # prefix caching is on
    cdef readonly int64_t prefix_query_tokens   # looked up at first admissions
    cdef readonly int64_t prefix_hit_tokens     # of these, found
    cdef readonly int64_t preemptions

    # ---- the policy: subclasses override these

    # What becomes of a request that comes: a RequestStatus at or after COMPLETED if it is refused, else PENDING.
    cdef int8_t refusal(self, int32_t row) noexcept nogil

    # A text of up to so many tokens is never refused. -1: unknown, and a replica must not lag behind
    # (engine/fleet/lookahead).
    # What lags must give a member one token a turn.
    cdef int64_t longest_surely_taken(self) noexcept nogil

    # Form the next batch at `now_ns`. An empty batch that preempted something is asked for again at once; an empty one
    # that did not means that nothing can run until something changes.
    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil

    # After a batch of members only: would the next iterations, free blocks permitting, be the same again for as long as
    # nobody arrives, finishes or leaves?
    cdef bint repeats(self) noexcept nogil

    # Between iterations: will each member have a turn in every iteration up to its last, whoever comes, as long as
    # nobody is preempted?
    cdef bint keeps_turns(self) noexcept nogil

    # With stride: does anybody go on with a token that the batch just formed brings?
    cdef bint feeds(self, const Batch* batch) noexcept nogil

    # Requests that do not run: in the waiting queue, or held.
    @cython.final
    cdef inline int32_t num_waiting(self) noexcept nogil:
        return self.waiting.size + self._held.size

    # Is a batch of no tokens an iteration?
    @cython.final
    cdef inline bint pauses(self, const Batch* batch) noexcept nogil:
        return self.pause_ns != 0 and batch.num_entries + batch.num_preempted + self._running.size > 0

    # Form the next batch, with room for all that run: those whose KV has come run before anything else is admitted.
    @cython.final
    cdef inline int form(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if self._arrived.size > 0:
            self.run_arrived()
        if batch.room < self.num_slots:
            grow_batch(batch, self.num_slots)
        batch.stands_still = False
        self.schedule(batch, now_ns)
        return self._tell_tier(batch) if self.copies else 0

    # A request arrives in the waiting queue.
    cdef int enqueue(self, int32_t row) except -1 nogil

    # The process of the replica has ended, and it has no requests: what was loaded or compiled for some is gone. What
    # was in KV is the cache's.
    cdef void forget(self) noexcept nogil

    # Is a LoRA adapter loaded, of a policy with `tracks_adapters`?
    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil

    # An entry came back: `sampled` tokens are appended to the text, `rejected` of the scheduled drafts taken back.
    # `goes_on`: it sampled, and will go on.
    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil

    # ---- shared by all: several batches in flight

    # A batch may be scheduled before the one before it has ended: stale tokens are kept. Called while the policy is
    # built, once it has said whether there is grouping; without it where there are pipeline stages. `lead`: as above.
    cdef int overlap(self, int32_t lead, int32_t num_groups) except -1

    # Have another group at hand.
    cdef void turn_to(self, int32_t group) noexcept nogil

    # The group that the next batch is of: with stride the one that its number says, else one of which no batch is in
    # flight, none of the others having members. What is known of any.
    cdef int32_t group_in_turn(self) noexcept nogil
    cdef Group group_at(self, int32_t index) noexcept nogil

    # Tokens of `row` still in flight from before a preemption: a policy must not admit it until they are back.
    # `settle_stale` takes off what came back.
    @cython.final
    cdef inline int32_t stale_tokens(self, int32_t row) noexcept nogil:
        return self._stale[row] if self._stale != NULL else 0

    @cython.final
    cdef inline void settle_stale(self, int32_t row, int32_t tokens) noexcept nogil:
        self._stale[row] -= tokens

    # ---- shared by all: while a batch is formed

    # The slot that the next admission gets.
    cdef int32_t top_slot(self) except -1 nogil

    # Put a request whose first `hits` blocks were found at the end of the running list, in top_slot(); return the slot.
    cdef int admit(self, int32_t row, int32_t hits, Batch* batch) except -1 nogil

    # Take a sequence off the running list, to be recomputed later; the policy puts it back into its waiting queue.
    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil

    # A member gets no token in this iteration: all its later ones come an iteration later. Where batches overlap it
    # parts as soon as the batch is formed, also when that is empty.
    cdef int starve(self, int32_t slot) except -1 nogil

    # No member gets one: the group stands still for as long as the iteration takes, and counts none. As to starve each
    # of them, but at once, and nobody parts; not where several batches are in flight without a group, nor with several.
    @cython.final
    cdef inline void pass_over(self, Batch* batch) noexcept nogil:
        batch.num_starved = self.num_members
        batch.stands_still = True

    # Schedule `scheduled` tokens of a sequence that is no member.
    cdef void add_entry(self, Batch* batch, int32_t slot) noexcept nogil

    # All is scheduled: count the tokens as computed and sum up the shape. `drafts`: drafts that the next iteration
    # verifies (async scheduling, where it is formed before this one ends); -1: not async.
    cdef void close(self, Batch* batch, int32_t drafts) noexcept nogil
    cdef void _tell_spread(self, Batch* batch) noexcept nogil
    cdef void _take_tally(self, Batch* batch) noexcept nogil

    # ---- shared by all: when an iteration begins and ends

    # The iteration just formed will execute; the same where batches overlap, or members stride; its results are back.
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
    cdef inline void begin_striding(self) noexcept nogil:
        self.member_tokens += self.strides.begin(self.phase) - self.num_members
        self.begin()

    # What is in flight comes to nothing.
    @cython.final
    cdef inline void forget_flight(self) noexcept nogil:
        cdef int32_t i
        self.num_in_flight = self.num_standing = 0
        for i in range(self.num_groups if self._groups != NULL else 0):
            self._groups[i].num_in_flight = 0

    # The oldest iteration has ended and the same members were scheduled again, `count` times over.
    cdef int repeat(self, int32_t count) except -1 nogil

    # Of several groups, batches of this one have ended, the last one at `ended_ns`, and others were scheduled, blocks
    # aside; then `fly`, oldest first, for each batch that is in flight now.
    cdef void repeat_of(self, int32_t group, int32_t num_ended, int32_t num_formed, int64_t ended_ns) noexcept nogil
    cdef void fly(self, Batch* batch) noexcept nogil

    # A sequence that has just sampled, or with `lead` will, becomes a member; a member is one no more, or it parts. It
    # may if its turns are alike from now on: with `lead`, more than a token in flight are not.
    @cython.final
    cdef inline bint may_join(self, const Entry* entry) noexcept nogil:
        return not self._asks_who_joins or self._may_join(entry)

    cdef int join(self, int32_t slot) except -1 nogil
    cdef void leave(self, int32_t slot) noexcept nogil
    cdef void part(self, int32_t slot) noexcept nogil

    # Members verify drafts, as many of which are accepted; asked where there are several `turn_tokens`, before anything
    # comes. `counts` is told of them when they leave.
    cdef int verify_by(self, Acceptance acceptance, DraftCounts counts) except -1

    # There, a sequence becomes a member if its last turn, which brought `sampled` tokens, was regular and the next one
    # is; `left`: tokens until it is complete. Return the first iteration in which it is one no more; -1: it is none.
    cdef int64_t join_striding(self, const Entry* entry, int32_t sampled, int32_t left) except -2 nogil

    # What `computed` returns there; what `repeat` and `leave` do. A member is one no more, and runs on.
    cdef int64_t computed_striding(self, int32_t slot) noexcept nogil
    cdef int repeat_striding(self, int32_t count) except -1 nogil
    cdef void leave_striding(self, int32_t slot) noexcept nogil
    cdef int fall_out(self, int32_t slot) except -1 nogil

    # The run is over: count what was accepted of a member up to now.
    cdef void count_striding(self, int32_t slot) noexcept nogil

    # A sequence is done: free its blocks and its slot. Of several: in this order.
    cdef int finish(self, int32_t slot) except -1 nogil
    cdef void sort_finished(self, int32_t* slots, int32_t count) noexcept nogil

    # The same for one that is taken off while the batch that ends may be followed by another with it.
    cdef int abort(self, int32_t slot) except -1 nogil

    # ---- shared by all: sequences that own KV without running, on the way from a replica or to it. A parked sequence
    # is in no batch that is formed.

    # Reserve blocks for the first `num_computed` tokens of a text of `num_tokens` that will come from elsewhere, those
    # found in the prefix cache among them; the slot, or -1 where there is no room, and nothing changed.
    cdef int32_t reserve(self, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil

    # The same for a text that has grown; False where there is no room.
    cdef bint extend(self, int32_t slot, int64_t num_tokens, int64_t num_computed) except -1 nogil

    # The KV has come: the sequence goes on like the one that was parked elsewhere, as soon as max_running allows.
    cdef int receive(self, int32_t slot, const Sequence* sequence) except -1 nogil

    # It does not come: what was reserved is free.
    cdef int cancel(self, int32_t slot) except -1 nogil

    # Take a sequence off the running list, WAITING from now on; it keeps its blocks. Between iterations only, where
    # there are members. Tokens in flight stay in flight, see stale_tokens.
    cdef int park(self, int32_t slot) except -1 nogil

    # All tokens in flight of a parked sequence are back: count them as its own.
    cdef void settle_parked(self, int32_t slot) noexcept nogil

    # A parked sequence has left: free what it holds. Or it stays, and will run again.
    cdef int release_parked(self, int32_t slot) except -1 nogil
    cdef void unpark(self, int32_t slot) noexcept nogil

    # The slot of a request whose KV has come and that does not run yet; -1: there is none.
    cdef int32_t arrived_slot(self, int32_t row) noexcept nogil

    # How many there are; the request that came last, -1: none; one of them leaves.
    @cython.final
    cdef inline int32_t num_arrived(self) noexcept nogil:
        return self._arrived.size

    @cython.final
    cdef inline int32_t last_arrived(self) noexcept nogil:
        return self._sequences[self._arrived.tail].row if self._arrived.size > 0 else -1

    cdef int drop_arrived(self, int32_t row) except -1 nogil

    # Let those whose KV has come run, as far as max_running allows.
    cdef void run_arrived(self) noexcept nogil

    # ---- shared by all: a tier beyond the blocks. What waits for KV from it holds its blocks and a slot, and is not in
    # `waiting`; the policy admits it like everything else.

    # Put a request, whose first `hits` blocks were found and which has blocks in top_slot() for what the tier has of
    # it besides, behind those that are held, or where the order of the waiting queue says.
    cdef int hold(self, int32_t row, int32_t hits, External found, int64_t now_ns) except -1 nogil

    # A sequence just admitted begins behind what the tier loads within the iteration.
    cdef int load_now(self, int32_t slot, External found, int64_t now_ns) except -1 nogil

    # Of the tokens in KV with which a request begins, those found there and not loaded: whole blocks. The last token
    # of a text that was loaded is computed anew.
    @cython.final
    cdef inline int32_t found_tokens(self, int32_t row, int32_t num_computed) noexcept nogil:
        if self.tier is None:
            return num_computed
        num_computed = max(num_computed - <int32_t>self.tier.loaded_tokens(row), 0)
        return blocks_for(num_computed, self.kv.block_size) * self.kv.block_size

    # Those held, in order: `first_held`, then `next_running` until it is negative.
    @cython.final
    cdef inline int32_t first_held(self) noexcept nogil:
        return self._held.head

    @cython.final
    cdef inline int32_t num_held(self) noexcept nogil:
        return self._held.size

    # The KV of one that is LOADED may be found by others: its blocks enter the prefix cache. The last token of its text
    # is computed anyway.
    cdef int settle_held(self, int32_t slot) except -1 nogil

    # Put it at the end of the running list.
    cdef int run_held(self, int32_t slot, Batch* batch) except -1 nogil

    # A token that came with the KV of one that is held belongs to its text: it goes on as one that decodes.
    @cython.final
    cdef inline void take_token(self, int32_t slot) noexcept nogil:
        self._sequences[slot].num_tokens += 1
        self._sequences[slot].is_decoding = True
        self.loading_tokens += 1

    # A parked sequence whose KV has come runs: see reserve().
    cdef int run_parked(self, int32_t slot, Batch* batch) except -1 nogil

    # A request that is held leaves; False: it is not there. What is on its way to here comes all the same.
    cdef bint drop_held(self, int32_t row) except -1 nogil

    # All that are held leave, and are added to `rows`; what the tier still reads is free.
    cdef int drop_all_held(self, RowList* rows) except -1 nogil

    # A running sequence is complete: does the tier read its blocks? True: it is off the running list, its blocks stay.
    @cython.final
    cdef inline bint keep(self, int32_t slot, int64_t now_ns) except -1 nogil:
        return self.tier is not None and self._keep(slot, now_ns)

    cdef bint _keep(self, int32_t slot, int64_t now_ns) except -1 nogil

    # Take notice of what was done by `now_ns`, between iterations.
    cdef int note_transfers(self, int64_t now_ns) except -1 nogil

    # Whoever did not know it before tells that what is on its way to the blocks of a slot, or is read from them, is
    # done at `done_ns`.
    @cython.final
    cdef inline int comes_at(self, int32_t slot, int64_t done_ns) except -1 nogil:
        return self.transfers.begin(LOAD, slot, done_ns)

    @cython.final
    cdef inline int is_read_at(self, int32_t slot, int64_t done_ns) except -1 nogil:
        return self.transfers.begin(KEEP, slot, done_ns)

    # When something will be; NEVER_NS: nothing is under way.
    @cython.final
    cdef inline int64_t next_transfer_ns(self) noexcept nogil:
        return self._next_transfer_ns() if self.transfers is not None else NEVER_NS

    # When there may be something to schedule though nothing ends before: KV comes, or the head of the queue may go.
    @cython.final
    cdef inline int64_t awaited_ns(self) noexcept nogil:
        return min(self.next_transfer_ns(), self.opens_ns)

    # With a tier that copies: until when steps bring nothing but their tokens, and the tier need not be told of each;
    # 0: the next one is not like that.
    cdef int64_t quiet_until_ns(self) noexcept nogil

    # With a tier that copies: tell it of the step just formed. The step has ended: take notice of what had been done
    # when it was launched; before that, of its end, if it was a batch.
    cdef int _tell_tier(self, Batch* batch) except -1 nogil
    cdef int end_step(self, const Batch* batch) except -1 nogil

    @cython.final
    cdef inline int free_put_off(self) except -1 nogil:
        return self._free_put_off() if self._put_off.size > 0 else 0

    # A request leaves that holds no blocks.
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

    # A running sequence is taken off for good, to be computed anew elsewhere.
    cdef int drop(self, int32_t slot) except -1 nogil

    # ---- shared by all: questions

    # The state of a sequence, shared with the rank that runs it: that one writes late_ns, is_starved and in_flight.
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

    # With grouping: the slots that run and are no members, in order of admission.
    @cython.final
    cdef inline int32_t num_prefilling(self) noexcept nogil:
        return self._num_prefilling

    @cython.final
    cdef inline int32_t prefilling_slot(self, int32_t i) noexcept nogil:
        return self._prefilling[i]

    # Tokens in KV, of a member or not.
    cdef int64_t computed(self, int32_t slot) noexcept nogil

    # Of these, those that no iteration in flight is at work on; asked while a batch is formed.
    @cython.final
    cdef inline int64_t settled(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t tokens = self.computed(slot) - sequence.in_flight
        if sequence.is_member and self.overlaps:
            tokens -= self.turns_in_flight(slot) * self.turn_tokens
        return tokens

    # Tokens that a member has generated so far: those in flight are not.
    @cython.final
    cdef inline int32_t outputs(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        return (<int32_t>(self.computed(slot) + 1) - sequence.prompt_tokens - sequence.num_placeholders
                - self.turns_in_flight(slot) * self.turn_tokens)

    # Turns of a member in iterations in flight: it has one in each, or in each since it joined while its entry is.
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

    # Where batches overlap: when a member had its last token, if the last iteration ended at `last_end_ns`.
    cdef int64_t last_token_ns(self, int32_t slot, int64_t last_end_ns) noexcept nogil

    # When the members of a batch had theirs before it, without stride.
    @cython.final
    cdef inline int64_t token_before_ns(self, const Batch* batch) noexcept nogil:
        return batch.end_ns - batch.duration_ns if self.lead > 0 else batch.start_ns

    # Of several groups the one at hand has its oldest batch back.
    @cython.final
    cdef inline void note_end(self, const Batch* batch) noexcept nogil:
        self.before_ns = self.ended_ns if self.stride > 0 else batch.start_ns
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
