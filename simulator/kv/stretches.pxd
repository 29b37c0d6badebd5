"""Free blocks that hold something, in the order in which they will be reused, as whole stretches where possible.

The content of a free block matters only to requests that can find it again. A block of shared text is an element of its
own, listed in the prefix cache; or several in a row are one, see runs.pxd. Private blocks of a request that was
preempted are one element: they are freed tail first and reused in that order, so the blocks left always begin where the
element began. Private text of complete requests is never found: its blocks are a count.

Two copies of a private block arise where a text is full to the last token of a block, which is computed anyway: the old
copy stays free. A lookup finds the copy that was cached first, as in vLLM; `stamp` keeps the order.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.fences cimport Fences
from simulator.kv.prefix_cache cimport Block, PrefixCache


cdef enum:
    NOBODY = -1                 # in place of a row: a lookup does not find these blocks
    READ = -2                   # in place of a row: a lookup does not find these blocks, and a tier still reads them
    PASSED = -3                 # in place of a row: blocks of one place of a text, one of each group of layers
    OWN = 0                     # in place of a row, of a run: only the sequence that computed it ever held it
    SHARED = 1                  # of a run: another sequence held it


cdef struct Stretch:            # an element without a hash, or a run
    int64_t stamp               # of a request: the larger, the later cached; of READ: the reader, see kv/fences.pxd;
                                # of a run: its reach; of PASSED: the name of the place
    int32_t row                 # the request that has the text, or one of the constants above
    int32_t begin, end          # blocks of the text; `end` - 1 is reused first. Without a row only their number counts
    int32_t sibling             # the next element of this row; 0: none. Of a run: the part behind, while both are held;
                                # of PASSED: the element passed before, of another name if that was reused


cdef struct Piece:              # part of an element, to be taken out of the queue
    int32_t element
    int32_t begin, end


@cython.final
cdef class Stretches:
    cdef Block* blocks          # [_num_records] elements; 0 is head and tail of the queue. One with a hash is a block
                                # of shared text, in the queue while no sequence holds it
    cdef Stretch* stretches     # [_num_records] of elements without a hash
    cdef readonly PrefixCache prefixes
    cdef readonly int32_t size  # blocks in the queue
    cdef bint has_runs          # elements with a hash are runs; else each is one block
    cdef Fences fences          # readers of blocks; None: the replica has no such tier
    cdef Piece* pieces          # [num_pieces] found by `find`, in the order of the text
    cdef int32_t num_pieces
    cdef int32_t _room_pieces
    cdef int32_t _num_records
    cdef int32_t _free          # first element not in use, linked by `next`; 0: none
    cdef int32_t _num_free      # elements not in use
    cdef HashMap _first_of      # key_of(row) -> its last stretch to enter the queue
    cdef int64_t _stamp         # the last one given out

    # Make room for `count` new elements. -1 without memory, and nothing changed.
    @cython.final
    cdef inline int prepare(self, int32_t count) except -1 nogil:
        return self._grow(count) if self._num_free < count else 0

    # A new block, held once, that will hold shared text; needs a call of `prepare`.
    cdef int32_t hold(self) noexcept nogil

    # No sequence holds a block of shared text any more: it becomes the last to be reused. A sequence holds it again.
    cdef void append_block(self, int32_t element) noexcept nogil
    cdef void take_block(self, int32_t element) noexcept nogil

    # The same for a run; its last block is reused first.
    cdef void append_run(self, int32_t element) noexcept nogil
    cdef void take_run(self, int32_t element) noexcept nogil

    # Let a run, free or held, end at block `at`; return a new element for the part behind; needs a call of `prepare`.
    cdef int32_t split(self, int32_t element, int32_t at) noexcept nogil

    # `count` blocks that no lookup will find become the last to be reused. -1 without memory.
    cdef int append_nobodys(self, int32_t count) except -1 nogil

    # The same for blocks begin .. end - 1 of the text of a reader, see kv/fences.pxd.
    cdef int append_read(self, int64_t reader, int32_t begin, int32_t end) except -1 nogil

    # `count` blocks of one place become the last to be reused; `before`: the element of the place passed before, or 0.
    # Return their element: num_passed() of its blocks are left, 0 if it has another name by now.
    cdef int32_t append_passed(self, int64_t name, int32_t count, int32_t before) except -1 nogil
    cdef int32_t num_passed(self, int32_t element, int64_t name) noexcept nogil

    # Let the block of such an element that is reused first be an element of its own, for text with this hash.
    cdef int list_passed(self, int32_t element, uint64_t hash) except -1 nogil

    # Private blocks begin .. end - 1 of a preempted request, all cached since it was admitted, become the last to be
    # reused; or a piece that `take` returned does. -1 without memory.
    cdef int append_private(self, int32_t row, int32_t begin, int32_t end) except -1 nogil
    cdef int append_piece(self, int32_t element) except -1 nogil

    # Go on from block `found` of the text of `row`, to block `most` at the latest: fill in `pieces`, return the end.
    cdef int32_t find(self, int32_t row, int32_t found, int32_t most) except -1 nogil

    # Take `pieces` out of the queue; return the last, linked to those before it by `sibling`. Needs a call of
    # `prepare`: two elements a piece.
    cdef int32_t take(self) noexcept nogil

    # Give up an element that `take` returned.
    cdef void drop_piece(self, int32_t element) noexcept nogil

    # The request will not come back.
    cdef void forget_row(self, int32_t row) noexcept nogil

    # Reuse the first `count` blocks.
    cdef void evict(self, int32_t count) noexcept nogil

    cdef int _grow(self, int32_t count) except -1 nogil
    cdef int32_t _new(self) noexcept nogil
    cdef void _append(self, int32_t element) noexcept nogil
    cdef void _insert_before(self, int32_t element, int32_t following) noexcept nogil
    cdef void _unlink(self, int32_t element) noexcept nogil
    cdef void _give_up(self, int32_t element) noexcept nogil
    cdef int32_t _cut_out(self, const Piece* piece) noexcept nogil
    cdef int32_t _copy(self, int32_t element, int32_t begin, int32_t end) noexcept nogil
    cdef void _leave_siblings(self, int32_t element) noexcept nogil
    cdef int32_t _num_blocks(self, int32_t element) noexcept nogil
    cdef int _note_piece(self, int32_t element, int32_t begin, int32_t end) except -1 nogil
