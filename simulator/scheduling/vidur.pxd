"""What Vidur's replica schedulers share: who is at hand, admission with the blocks of a whole prompt, restarts.

Who is *at hand* runs and has no batch in flight. Vidur keeps such requests in a list, in the order in which their
batches came back: with one batch in flight that is the order of admission, with pipeline stages a stamp of each
request tells.
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
    cdef int32_t _count                 # requests at hand; the last ones restart where blocks run out
    cdef int32_t* _at_hand              # [_count] slots at hand, in order; behind a visit to it -1: it restarted
    cdef int64_t* _stamps               # [_count] what they are sorted by
    cdef int32_t _room                  # of these two
    cdef int64_t* _returned             # [row] with pipeline stages: stamp of its last batch; NULL: one batch in flight
    cdef int64_t _stamp                 # that the next one gets
    cdef int32_t _spare                 # free blocks that each needs who goes on, whether it takes one or not: 0 or 1
    cdef bint _outputs_are_prompts      # some prompt contains what another request generates

    # Take the keys that all have, and `_spare`; called by __init__.
    cdef int share(self, int64_t batch_size_cap, double watermark_fraction, int32_t spare, object context) except -1

    # Empty the batch.
    cdef void begin_batch(self, Batch* batch, int64_t now_ns) noexcept nogil

    # Find who is at hand: nobody has a turn yet.
    cdef int gather_at_hand(self) except -1 nogil

    # Sort these by arrival; who came together stays as it was.
    cdef void sort_by_arrival(self) noexcept nogil

    # Give the i-th at hand its next `tokens`, with room for `slots` tokens. The last ones at hand restart until there
    # is; False: it had to itself.
    cdef bint continue_at(self, Batch* batch, int32_t i, int64_t tokens, int64_t slots) except -1 nogil

    # All that run decode, and go on: True if nobody can be in need of a block.
    cdef bint decode_all(self, Batch* batch) except -1 nogil

    # Admit the head of the queue with blocks for `slots` tokens and at most `most` of its text; False: no room.
    cdef bint admit_head(self, Batch* batch, int64_t most, int64_t slots) except -1 nogil

    # Of the text of the head of the queue, those tokens that it would compute: they are not found, nor come with it.
    cdef int64_t head_tokens(self) except -1 nogil

    cdef int _find_head(self, External* found) except -1 nogil

    # The text of the head of the queue, in tokens.
    @cython.final
    cdef inline int64_t head_text(self) noexcept nogil:
        cdef int32_t row = self.waiting.top()
        return <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens

    # Does somebody wait for whom there are places, in the replica and in the batch?
    @cython.final
    cdef inline bint has_place(self) noexcept nogil:
        return (self.waiting.size > 0 and self._running.size < self.max_running and self._size < self._micro_batch
                and self.stale_tokens(self.waiting.top()) == 0)

    # Put who was given tokens into the batch: those at hand first, in order, then those admitted.
    cdef int fill(self, Batch* batch) except -1 nogil

    # Take a sequence off the running list, to go on in front of all that wait.
    cdef int restart(self, Batch* batch, int32_t slot) except -1 nogil

    cdef inline int64_t _stamp_of(self, const Sequence* sequence) noexcept nogil
