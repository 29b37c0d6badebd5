"""Running requests in SGLang's scheduler: decodes, results, retraction.

`Sglang` adds admission. The running batch is a list of its own: a prompt enters it one pass after its batch was chosen,
and a request that is certain to end leaves it while its last token is in flight.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove

from simulator.core.row_list cimport RowList, add_row
from simulator.domain.iteration cimport Batch, Entry
from simulator.kv.base cimport blocks_for
from simulator.kv.radix cimport RadixKV
from simulator.scheduling.base cimport Scheduler
from simulator.scheduling.sglang_owed cimport MOST_RESERVED, Owed
from simulator.scheduling.sglang_queue cimport SglangQueue


cdef struct Progress:           # of a slot
    int64_t published           # tokens published in the tree by this sequence
    int64_t pending             # tokens to publish when its batch ends, for a prompt; else 0
    int64_t stamp               # of a decoding slot: increases along the running batch; kept when the slot leaves it
    int64_t committed           # with drafts: tokens in KV, without those of a decode in flight
    bint has_come               # of a held slot: its KV has arrived, and the scheduler has seen it


# A bound of the rounding errors in a sum of at most a million doubles, in any order.
cdef inline double slack_of(double total) noexcept nogil:
    return 1e-9 * total


cdef inline void drop_at(RowList* listed, int32_t place) noexcept nogil:
    listed.size -= 1
    if place < listed.size:
        memmove(&listed.rows[place], &listed.rows[place + 1], (listed.size - place) * sizeof(int32_t))


cdef inline void drop_row(RowList* listed, int32_t row) noexcept nogil:
    cdef int32_t i = 0
    while i < listed.size and listed.rows[i] != row:
        i += 1
    if i < listed.size:
        drop_at(listed, i)


cdef class SglangRunning(Scheduler):
    cdef RadixKV _pages                 # kv
    cdef SglangQueue _queue             # the order of `waiting`
    cdef RowList _decoding              # slots of the running batch, in order
    cdef int64_t _last_stamp            # last stamp given
    cdef RowList _prefilled             # slots of the last batch if it had prompts, except the chunked one
    cdef RowList _sorted                # slots in the order in which they are put back
    cdef RowList _fresh                 # where batches overlap, slots of members with their first token in flight
    cdef Owed _owing                    # tokens that all other members may still generate
    cdef RowList _lost                  # rows that ran alone and found no page
    cdef Progress* _progress            # [_room] by slot
    cdef int32_t _room
    cdef int32_t _chunked               # slot of the unfinished prompt that goes on; -1: none
    cdef bint _is_full                  # no request is admitted until one leaves
    cdef bint _somebody_left
    cdef double _ratio                  # expected part of the tokens that may be generated
    cdef double _first_ratio, _least_ratio, _decay
    cdef bint _is_upstream              # upstream_compat
    cdef bint _is_whole                 # it computes prompts and decodes them, and no other replica reads its KV
    cdef bint _overlaps_batches
    cdef bint _by_priority
    cdef bint _retracts_by_priority
    cdef bint* _ignores                 # [classes + 1] whether the end token is ignored
    cdef int32_t _num_classes
    cdef int32_t _verified              # tokens of a request that a decode verifies; 0: there are no drafts
    cdef int64_t _reserved              # with drafts: tokens that a decode reserves for a request

    cdef inline int32_t _row(self, int32_t slot) noexcept nogil:
        return self._sequences[slot].row

    cdef inline int64_t _paged(self, int64_t tokens) noexcept nogil:
        return <int64_t>blocks_for(tokens, self.kv.block_size) * self.kv.block_size

    cdef inline int64_t _outputs(self, int32_t row) noexcept nogil:
        return self._requests[row].output_tokens

    cdef inline int64_t _written(self, int32_t slot) noexcept nogil:
        """Return the tokens that a running request has generated, without those in flight."""
        return self.outputs(slot) if self._sequences[slot].is_member else self._outputs(self._row(slot))

    cdef inline bint _ignores_end(self, int32_t row) noexcept nogil:
        cdef int32_t code = self._demands[row].slo_class
        return self._ignores[code if code >= 0 else self._num_classes]

    cdef inline double _owed(self, int32_t slot) noexcept nogil:
        """Return the tokens that a running request is still expected to need."""
        cdef int32_t row = self._row(slot)
        return <double>min(self._queue.most(row) - self._written(slot), <int64_t>MOST_RESERVED) * (
            1.0 if self._ignores_end(row) else self._ratio)

    cdef inline int64_t _preference(self, int32_t row) noexcept nogil:
        """Return a number that is larger for requests that go first."""
        return -<int64_t>self._queue.sign * self._demands[row].priority

    # Append a slot to the running batch; remove it, if it is there.
    cdef inline int _list(self, int32_t slot) except -1 nogil:
        self._last_stamp += 1
        self._progress[slot].stamp = self._last_stamp
        return add_row(&self._decoding, slot)

    cdef inline void _unlist(self, int32_t slot) noexcept nogil:
        cdef int32_t place = self._place_of(slot)
        if place < self._decoding.size:
            drop_at(&self._decoding, place)

    # Index of a slot in the running batch; the batch's size if it is not there.
    cdef inline int32_t _place_of(self, int32_t slot) noexcept nogil:
        cdef const int32_t* rows = self._decoding.rows
        cdef int32_t low = 0, high = self._decoding.size, middle
        while low < high:
            middle = (low + high) // 2
            if self._progress[rows[middle]].stamp < self._progress[slot].stamp:
                low = middle + 1
            else:
                high = middle
        return low if low < self._decoding.size and rows[low] == slot else self._decoding.size

    # Make room for more slots. Remove a request from the lists.
    cdef int _grow_own(self) except -1 nogil
    cdef int _forget_slot(self, int32_t slot) except -1 nogil

    # Publish the first tokens of a sequence in the tree; or all of its tokens, and free its other pages. Where a tier
    # may read the sequence, _publish_all waits for the tier's decision.
    cdef int _publish(self, int32_t slot, int64_t tokens) except -1 nogil
    cdef int _publish_all(self, int32_t slot) except -1 nogil

    # End a cut prompt where it was cut, if a later one of its batch goes on instead (upstream_compat).
    cdef void _cut_short(self, int32_t slot) noexcept nogil

    # Put a sequence back in the queue; `left` others run on. KV that is not in the tree and a token in flight are lost.
    cdef int _put_back(self, Batch* batch, int32_t slot, int64_t left) except -1 nogil

    # Tokens that all decoding requests are expected to need: in SGLang's order; approximately, in O(1); of members.
    cdef double _owed_by_decoding(self) noexcept nogil
    cdef double _owed_about(self) noexcept nogil
    cdef double _owed_by_members(self) noexcept nogil

    # With drafts: tokens that a request has room for while it decodes, whole pages; count the tokens that a decode
    # committed.
    cdef inline int64_t _roomy(self, int32_t slot) noexcept nogil:
        return max(self._pages.tokens(slot), self._paged(self._progress[slot].committed + self._reserved))

    cdef void _commit(self, const Entry* entry, int32_t rejected, bint goes_on) noexcept nogil

    # Record the tokens left of a member that has a token in each iteration that has ended.
    cdef int _note_owing(self, int32_t slot) except -1 nogil

    # Does a sequence that is no member end with the batch that executes, at the latest?
    cdef inline bint _is_ending(self, int32_t slot) noexcept nogil:
        return self._sequences[slot].in_flight > 0 and (
            self._outputs(self._row(slot)) + 1 >= self._queue.most(self._row(slot)))

    # Remove requests that end with the batch that executes; return whether there were any. Then: is there room for a
    # token of each slot? All members decode while a batch is formed.
    cdef bint _leave_out_ending(self) except -1 nogil
    cdef bint _decodes_fit(self, const RowList* slots) except -1 nogil

    cdef int _decode_all(self, Batch* batch) except -1 nogil            # a token for each slot of the running batch
    cdef int _verify_all(self, Batch* batch) except -1 nogil            # the same with drafts

    # Form a batch of decodes, putting requests back until the others have room.
    cdef int _decode(self, Batch* batch) except -1 nogil
    cdef int _retract(self, Batch* batch) except -1 nogil
    cdef bint _give_up_chunk(self, Batch* batch) except -1 nogil

    # Sort running requests into _sorted: first to make room for a better priority, or last to be retracted, first.
    cdef int _sort_running(self, bint makes_room) except -1 nogil
    cdef bint _goes_sooner(self, int32_t slot, int32_t other) noexcept nogil
    cdef bint _stays_longer(self, int32_t slot, int32_t other) noexcept nogil
