"""What SGLang's scheduler does with requests that run: decodes, results, retraction.

`Sglang` adds who is admitted. The running batch is a list of its own: a prompt enters it one pass after its batch was
chosen, and who is certain to end leaves it while the last token is in flight.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove

from simulator.core.row_list cimport RowList, add_row
from simulator.domain.iteration cimport Batch
from simulator.kv.base cimport blocks_for
from simulator.kv.radix cimport RadixKV
from simulator.scheduling.base cimport Scheduler
from simulator.scheduling.sglang_owed cimport MOST_RESERVED, Owed
from simulator.scheduling.sglang_queue cimport SglangQueue


cdef struct Progress:           # of a slot
    int64_t published           # tokens that others find, as far as it has put them into the tree
    int64_t pending             # its prompt will be published with the batch that ends so many tokens; else 0
    int64_t stamp               # of one that decodes: grows along the running batch; kept when it is taken off that
    bint has_come               # of one that is held: its KV is here, and that was noticed


# More than what the order of the terms may change in a sum of doubles, a million of them or less.
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
    cdef int64_t _last_stamp            # that one of them got
    cdef RowList _prefilled             # slots of the batch before, if it had prompts: all but the chunked one
    cdef RowList _sorted                # slots in the order in which they are put back
    cdef RowList _fresh                 # where batches overlap, slots of members whose first token is in flight
    cdef Owed _owing                    # what the other members may still generate
    cdef RowList _lost                  # rows of those who ran alone and had no page left
    cdef Progress* _progress            # [_room] by slot
    cdef int32_t _room
    cdef int32_t _chunked               # slot of the prompt that goes on; -1: none
    cdef bint _is_full                  # nobody is admitted until somebody leaves
    cdef bint _somebody_left
    cdef double _ratio                  # of what may be generated, the part that is expected
    cdef double _first_ratio, _least_ratio, _decay
    cdef bint _is_upstream              # upstream_compat
    cdef bint _is_whole                 # it computes prompts and goes on with them, and no other replica reads its KV
    cdef bint _overlaps_batches
    cdef bint _by_priority
    cdef bint _retracts_by_priority
    cdef bint* _ignores                 # [classes + 1] the end token
    cdef int32_t _num_classes

    cdef inline int32_t _row(self, int32_t slot) noexcept nogil:
        return self._sequences[slot].row

    cdef inline int64_t _paged(self, int64_t tokens) noexcept nogil:
        return <int64_t>blocks_for(tokens, self.kv.block_size) * self.kv.block_size

    cdef inline int64_t _outputs(self, int32_t row) noexcept nogil:
        return self._requests[row].output_tokens

    cdef inline int64_t _written(self, int32_t slot) noexcept nogil:
        """Return the tokens that one that runs has generated, those in flight aside."""
        return self.outputs(slot) if self._sequences[slot].is_member else self._outputs(self._row(slot))

    cdef inline bint _ignores_end(self, int32_t row) noexcept nogil:
        cdef int32_t code = self._demands[row].slo_class
        return self._ignores[code if code >= 0 else self._num_classes]

    cdef inline double _owed(self, int32_t slot) noexcept nogil:
        """Return what one that runs is expected to need still."""
        cdef int32_t row = self._row(slot)
        return <double>min(self._queue.most(row) - self._written(slot), <int64_t>MOST_RESERVED) * (
            1.0 if self._ignores_end(row) else self._ratio)

    cdef inline int64_t _preference(self, int32_t row) noexcept nogil:
        """Return what is larger for who goes first."""
        return -<int64_t>self._queue.sign * self._demands[row].priority

    # Put a slot at the end of the running batch; take it out, if it is there.
    cdef inline int _list(self, int32_t slot) except -1 nogil:
        self._last_stamp += 1
        self._progress[slot].stamp = self._last_stamp
        return add_row(&self._decoding, slot)

    cdef inline void _unlist(self, int32_t slot) noexcept nogil:
        cdef int32_t place = self._place_of(slot)
        if place < self._decoding.size:
            drop_at(&self._decoding, place)

    # Where a slot is in the running batch; its size: nowhere.
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

    # There are more slots. A request leaves the lists.
    cdef int _grow_own(self) except -1 nogil
    cdef int _forget_slot(self, int32_t slot) except -1 nogil

    # Put the first tokens of a sequence into the tree; or all that it has, and free the rest. Where a tier may read it,
    # the latter waits until that has said whether it does.
    cdef int _publish(self, int32_t slot, int64_t tokens) except -1 nogil
    cdef int _publish_all(self, int32_t slot) except -1 nogil

    # A prompt was cut, and a later one of its batch goes on instead (upstream_compat): it ends where it was cut.
    cdef void _cut_short(self, int32_t slot) noexcept nogil

    # Take one off, `left` others run on; what it computed is lost but for the tree, and so is a token in flight.
    cdef int _put_back(self, Batch* batch, int32_t slot, int64_t left) except -1 nogil

    # What all who decode are expected to need still, summed up in SGLang's order; about as much, at once; for members.
    cdef double _owed_by_decoding(self) noexcept nogil
    cdef double _owed_about(self) noexcept nogil
    cdef double _owed_by_members(self) noexcept nogil

    # A member has had all tokens that are not in flight in every iteration.
    cdef int _note_owing(self, int32_t slot) except -1 nogil

    # Does one who is no member end with the batch that executes, if it does not before?
    cdef inline bint _is_ending(self, int32_t slot) noexcept nogil:
        return self._sequences[slot].in_flight > 0 and (
            self._outputs(self._row(slot)) + 1 >= self._queue.most(self._row(slot)))

    # Leave out those who end with the batch that executes: were there any? Is there room for a token each? While a
    # batch is formed all members decode.
    cdef bint _leave_out_ending(self) except -1 nogil
    cdef bint _decodes_fit(self, const RowList* slots) except -1 nogil

    cdef int _decode_all(self, Batch* batch) except -1 nogil            # give each a token

    # Form a batch of decodes, putting requests back until the others have room.
    cdef int _decode(self, Batch* batch) except -1 nogil
    cdef int _retract(self, Batch* batch) except -1 nogil
    cdef bint _give_up_chunk(self, Batch* batch) except -1 nogil

    # List who runs: who makes room for a request of better priority first, else who is retracted last.
    cdef int _sort_running(self, bint makes_room) except -1 nogil
    cdef bint _goes_sooner(self, int32_t slot, int32_t other) noexcept nogil
    cdef bint _stays_longer(self, int32_t slot, int32_t other) noexcept nogil
