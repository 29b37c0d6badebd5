"""Embeddings of images and the like: what encoders may compute in a batch, and what is kept of it.

An item is encoded whole, in the batch that computes the first of its tokens, and stays until all of them are computed.
Where others encode it is fetched then: it takes places, and nothing of what a batch may encode.
The same item of several prompts is encoded once. A request refers to an item from when it is encoded, or found, until
its tokens are in KV; items that nobody refers to stay until their place is needed, oldest first.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Item


cdef struct Content:            # what an item shows, if it is there
    int64_t tokens              # embeddings; 0: it is not there
    int32_t users               # requests that refer to it


@cython.final
cdef class EncoderCache:
    cdef readonly int64_t limit             # embeddings that a batch may encode
    cdef readonly int64_t size              # embeddings that are kept at most
    cdef readonly int64_t free              # places
    cdef readonly int64_t reclaimable       # these, and those of items that nobody refers to
    cdef readonly int64_t budget            # embeddings that the batch being formed may still encode
    cdef readonly int64_t batch_tokens      # embeddings that it encodes
    cdef bint _keeps_whole                  # disable_chunked_mm_input: a chunk does not end inside of an item
    cdef bint _fetches                      # others encode: what is not there comes from them, and is not computed
    cdef const int64_t* _begins             # [requests + 1] of the items of each, borrowed from Items, like
    cdef const Item* _items
    cdef int64_t* _encoded_of               # [requests] embeddings encoded for each so far; NULL: not kept
    cdef object _owner
    cdef Content* _contents                 # [_num_contents]
    cdef int8_t* _is_held                   # [_num_items] its request refers to it
    cdef int32_t _num_contents, _num_items
    cdef IndexLinks _links                  # of contents, in
    cdef IndexList _unused                  # that nobody refers to, oldest first
    cdef RowList _planned                   # items that the request at hand has encoded, if it has a turn; those that
    cdef RowList _duplicates                # show the same as one of these
    cdef int64_t _planned_tokens
    cdef int64_t _budget_behind             # what of the budget is left then
    cdef RowList _encoded                   # items that the batch being formed encodes
    cdef object _evicted                    # contents that went, for the debug face; None: not kept

    # Another batch is formed.
    cdef inline void begin(self) noexcept nogil:
        self.budget = self.limit
        self.batch_tokens = 0
        self._encoded.size = 0

    # Are there items in its prompt? Behind so many tokens, or with a part there?
    cdef inline bint has_items(self, int32_t row) noexcept nogil:
        return self._begins[row] < self._begins[row + 1]

    cdef inline bint lacks(self, int32_t row, int64_t computed) noexcept nogil:
        cdef const Item* last = &self._items[self._begins[row + 1] - 1]
        return self.has_items(row) and <int64_t>last.offset + last.tokens > computed

    # Does the request refer to any?
    cdef bint holds(self, int32_t row) noexcept nogil

    # How many of `tokens` tokens behind `computed` a request can compute in this batch, for its items; it refers to
    # those that are there. Then, if it has this turn: the others are encoded.
    cdef int64_t plan(self, int32_t row, int64_t computed, int64_t tokens) except -1 nogil
    cdef int encode(self, int32_t row) except -1 nogil

    # It had a turn in this batch, and loses it: others may encode as much. That it does not encode its own is found out
    # too late for those who come.
    cdef void give_back(self, int32_t row) noexcept nogil

    # So many of its tokens are in KV: it refers to none of these any more. Or it refers to none at all.
    cdef void pass_by(self, int32_t row, int64_t computed) noexcept nogil
    cdef void let_go(self, int32_t row) noexcept nogil

    # Nobody refers to any, and all are gone.
    cdef void forget(self) noexcept nogil

    cdef inline void _count(self, int32_t row, int64_t tokens) noexcept nogil:
        self.batch_tokens += tokens
        if self._encoded_of != NULL:
            self._encoded_of[row] += tokens

    cdef bint _find(self, int32_t row, int32_t item) noexcept nogil
    cdef bint _refers_to(self, int32_t row, int32_t content) noexcept nogil
    cdef void _hold(self, int32_t row, int32_t item) noexcept nogil
    cdef void _drop(self, int32_t row, int32_t item) noexcept nogil
    cdef bint _is_planned(self, int32_t content) noexcept nogil
    cdef bint _make_room(self, int64_t tokens) except -1 nogil
    cdef int _note_eviction(self, int32_t content) except -1 nogil
