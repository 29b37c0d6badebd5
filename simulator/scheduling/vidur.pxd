"""Base of Vidur's replica schedulers: sequences at hand, admission with blocks for a whole prompt, restarts.

A sequence is *at hand* if it runs and has no batch in flight. Vidur keeps such requests in a list, in the order in
which their batches returned: with one batch in flight this is the order of admission; with pipeline stages each request
has a stamp.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.kv.tier cimport External
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.in_order cimport InOrder


cdef class VidurScheduler(InOrder):
    cdef int32_t _micro_batch           # requests in a batch, at most: batch_size_cap / pipeline stages
    cdef int32_t _watermark             # blocks that stay free at admission while anything runs
    cdef int32_t _size                  # requests in the batch being formed
    cdef int32_t _count                 # sequences at hand; the last ones restart if blocks run out
    cdef int32_t* _at_hand              # [_count] slots at hand, in order; -1: it restarted after its visit
    cdef int64_t* _stamps               # [_count] sort keys of _at_hand
    cdef int32_t _room                  # capacity of _at_hand and _stamps
    cdef int64_t* _returned             # [row] with pipeline stages: stamp of its last batch; NULL: one batch in flight
    cdef int64_t _stamp                 # last stamp given
    cdef int32_t _spare                 # blocks that must be free for each sequence that goes on, needed or not: 0 or 1
    cdef bint _outputs_are_prompts      # some prompt contains the output of another request

    # Set the common keys, and `_spare`; called by __init__.
    cdef int share(self, int64_t batch_size_cap, double watermark_fraction, int32_t spare, object context) except -1

    # Empty the batch.
    cdef void begin_batch(self, Batch* batch, int64_t now_ns) noexcept nogil

    # List the sequences at hand; none is scheduled yet.
    cdef int gather_at_hand(self) except -1 nogil

    # Sort the sequences at hand by arrival, stably.
    cdef void sort_by_arrival(self) noexcept nogil

    # Schedule `tokens` of the i-th sequence at hand, with room for `slots` tokens. If blocks are lacking, the last ones
    # at hand restart; return False if it restarted itself.
    cdef bint continue_at(self, Batch* batch, int32_t i, int64_t tokens, int64_t slots) except -1 nogil

    # Schedule all members if no one can lack a block; return whether it did.
    cdef bint decode_all(self, Batch* batch) except -1 nogil

    # Admit the head of the queue with blocks for `slots` tokens and at most `most` of its text; False: no room.
    cdef bint admit_head(self, Batch* batch, int64_t most, int64_t slots) except -1 nogil

    # Tokens that the head of the queue would compute: neither cached nor arriving with it.
    cdef int64_t head_tokens(self) except -1 nogil

    cdef int _find_head(self, External* found) except -1 nogil

    # The text of the head of the queue, in tokens.
    @cython.final
    cdef inline int64_t head_text(self) noexcept nogil:
        cdef int32_t row = self.waiting.top()
        return <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens

    # Is there a waiting request, and a place for it in the replica and in the batch?
    @cython.final
    cdef inline bint has_place(self) noexcept nogil:
        return (self.waiting.size > 0 and self._running.size < self.max_running and self._size < self._micro_batch
                and self.stale_tokens(self.waiting.top()) == 0)

    # Add scheduled sequences to the batch: those at hand first, in order, then admitted ones.
    cdef int fill(self, Batch* batch) except -1 nogil

    # Take a sequence off the running list and put it at the front of the queue.
    cdef int restart(self, Batch* batch, int32_t slot) except -1 nogil

    cdef inline int64_t _stamp_of(self, const Sequence* sequence) noexcept nogil
