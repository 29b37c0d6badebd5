"""Which requests run next inside a replica: what every scheduler shares, and the one question it answers.

A scheduler owns its waiting queue, its running list and the state of each running request (a Sequence, known by its slot). The engine
asks `schedule` for the next batch, times it, and tells what came of it. Sequences that decode one token an iteration can be *members*
of the group: they advance together by counting iterations, so that an iteration costs nothing per member.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Demand, Request
from simulator.kv.base cimport KVCache
from simulator.domain.iteration cimport Batch, Entry
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef struct Sequence:
    int64_t order               # admission stamp: increases along the running list
    int64_t offset              # of a member: tokens in KV when iteration i is scheduled = i + offset
    int64_t late_ns             # of a member: time since its last token that it spent in iterations without a turn
    int32_t row                 # the request; -1: the slot is free
    int32_t prompt_tokens
    int32_t num_tokens          # prompt and outputs so far; of a member: not kept, tokens in KV + 1
    int32_t num_computed        # tokens in KV, those of scheduled iterations included; of a member: not kept
    int32_t num_drafts          # draft tokens held, to be verified in the next iteration
    int32_t num_placeholders    # async scheduling: output tokens still in flight
    int32_t in_flight           # async scheduling: tokens scheduled and not returned
    int32_t scheduled           # tokens in the batch being formed (kept where sequences are visited one by one)
    int32_t scheduled_drafts    # of these, drafts
    int8_t is_member
    int8_t is_decoding          # has sampled a token since it was admitted
    int8_t is_partial           # the last scheduled chunk ends before the end of its text
    int8_t is_new               # admitted by the batch being formed
    int8_t is_starved           # of a member, where num_starved > 0: it has no turn in the batch scheduled last


cdef class Scheduler:
    cdef readonly KVCache kv
    cdef readonly WaitingQueue waiting
    cdef Request* _requests             # borrowed, like _demands
    cdef const Demand* _demands
    cdef object _owners                 # the arrays these pointers borrow from
    cdef Sequence* _sequences           # [slot]
    cdef int32_t* _free_slots           # stack; slots num_slots - 1 .. 0 at first
    cdef int32_t _num_free_slots
    cdef readonly int32_t num_slots
    cdef readonly int32_t max_running   # sequences in the running list, at most
    cdef readonly int64_t longest_prompt        # in tokens; of a longer one no token could ever be sampled
    cdef IndexLinks _links              # of slots, in
    cdef IndexList _running             # the running list, in order of admission
    cdef int64_t _next_order

    cdef bint grouping                  # decoding sequences become members
    cdef int64_t iteration              # number of the iteration to be scheduled next
    cdef int32_t phase                  # iteration % block_size
    cdef int32_t num_members
    cdef int64_t member_tokens          # sum over members of tokens in KV after the next iteration
    cdef int64_t _last_member_order     # no member has a larger one
    cdef int32_t* _prefilling           # with grouping: running sequences that are not members, in order
    cdef int32_t _num_prefilling

    cdef bint _counts_queries           # prefix caching is on
    cdef readonly int64_t prefix_query_tokens   # looked up at first admissions
    cdef readonly int64_t prefix_hit_tokens     # of these, found
    cdef readonly int64_t preemptions

    # ---- the policy: subclasses override these

    # Form the next batch at `now_ns`. An empty batch that preempted something is asked for again at once; an empty one that did not
    # means that nothing can run until something changes.
    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil

    # After a batch of members only: would the next iterations, free blocks permitting, be the same again for as long as nobody
    # arrives, finishes or leaves?
    cdef bint repeats(self) noexcept nogil

    # A request arrives in the waiting queue.
    cdef int enqueue(self, int32_t row) except -1 nogil

    # Tokens came back for an entry: `sampled` appended to the text, `rejected` drafts of the scheduled ones taken back.
    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil

    # Tokens of `row` still in flight from before a preemption (async scheduling); `settle_stale` takes off what came back.
    cdef int32_t stale_tokens(self, int32_t row) noexcept nogil
    cdef void settle_stale(self, int32_t row, int32_t tokens) noexcept nogil

    # ---- shared by all

    cdef int64_t computed(self, int32_t slot) noexcept nogil        # tokens in KV, member or not
    @cython.final
    cdef inline int32_t outputs(self, int32_t slot) noexcept nogil: # of a member: tokens generated so far
        return <int32_t>(self.iteration + self._sequences[slot].offset + 1) - self._sequences[slot].prompt_tokens
    cdef int admit(self, int32_t row, int32_t hits, Batch* batch) except -1 nogil   # to the end of the running list, in top_slot
    cdef int32_t top_slot(self) except -1 nogil                     # the slot the next admission gets
    cdef void add_entry(self, Batch* batch, int32_t slot) noexcept nogil    # schedule sequence.scheduled tokens of it
    # The batch is formed: count its tokens as computed, sum up its shape. `drafts`: async scheduling; drafts a step, or -1.
    cdef void close(self, Batch* batch, int32_t drafts) noexcept nogil
    cdef int join(self, int32_t slot) except -1 nogil               # a sequence that has just sampled becomes a member
    cdef void leave(self, int32_t slot) noexcept nogil              # a member is one no more
    cdef int starve(self, int32_t slot) except -1 nogil             # a member does not advance in the iteration being formed
    cdef int finish(self, int32_t slot) except -1 nogil             # frees blocks and slot
    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil      # recompute: all of it again later
    cdef void advance(self) noexcept nogil                          # the iteration scheduled last has ended
    cdef int repeat(self, int32_t count) except -1 nogil            # it ended, and the same members were scheduled, `count` times
    cdef int32_t slot_of(self, int32_t row) noexcept nogil          # -1: not running
    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil
    cdef int32_t _phase_of(self, int64_t offset) noexcept nogil
    cdef void _drop_prefilling(self, int32_t slot) noexcept nogil
    cdef int _grow(self) except -1 nogil
