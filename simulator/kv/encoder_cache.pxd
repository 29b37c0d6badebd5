"""Embeddings of images and other items: the encoder budget of a batch, and the embeddings that are kept.

An item is encoded whole, in the batch that computes the first of its tokens, and stays until all its tokens are
computed. If another replica encodes, the item is fetched in that batch: it takes places in the cache but no encoder
budget. The same item of several prompts is encoded once. A request refers to an item from when it is encoded, or found,
until its tokens are in KV; an item without references stays until its places are needed, the oldest goes first.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Item


cdef struct Content:            # the image or other data behind an item
    int64_t tokens              # embeddings; 0: they are not in the cache
    int32_t users               # requests that refer to it


@cython.final
cdef class EncoderCache:
    cdef readonly int64_t limit             # embeddings that a batch may encode
    cdef readonly int64_t size              # embeddings that are kept at most
    cdef readonly int64_t free              # places
    cdef readonly int64_t reclaimable       # free places and the places of items without references
    cdef readonly int64_t budget            # embeddings that the batch being formed may still encode
    cdef readonly int64_t batch_tokens      # embeddings that the batch being formed encodes
    cdef bint _keeps_whole                  # disable_chunked_mm_input: a chunk does not end inside of an item
    cdef bint _waits_at_items               # then a chunk that begins at an item waits for all of it, as in vLLM 0.33
    cdef bint _fetches                      # another replica encodes: missing items are fetched, not computed
    cdef const int64_t* _begins             # [requests + 1] index of a request's first item; borrowed from Items, like
    cdef const Item* _items
    cdef const double* _prices              # [_num_items] time of encoding an item, in ns; NULL: items have no prices
    cdef int64_t* _encoded_of               # [requests] embeddings encoded for each so far; NULL: not counted
    cdef object _owner
    cdef Content* _contents                 # [_num_contents]
    cdef int8_t* _is_held                   # [_num_items] its request refers to it
    cdef int32_t _num_contents, _num_items
    cdef IndexLinks _links                  # of contents, in
    cdef IndexList _unused                  # contents without references, oldest first
    cdef RowList _planned                   # items that the planned request would encode if it is scheduled; items with
    cdef RowList _duplicates                # the same content as one of the planned items
    cdef int64_t _planned_tokens
    cdef int64_t _budget_behind             # the budget left once the planned items are encoded
    cdef RowList _encoded                   # items that the batch being formed encodes
    cdef object _evicted                    # contents that were evicted, for the debug face; None: not kept

    # Begin to form another batch.
    cdef inline void begin(self) noexcept nogil:
        self.budget = self.limit
        self.batch_tokens = 0
        self._encoded.size = 0

    # Does the prompt have items? Does one reach beyond the first `computed` tokens?
    cdef inline bint has_items(self, int32_t row) noexcept nogil:
        return self._begins[row] < self._begins[row + 1]

    cdef inline bint lacks(self, int32_t row, int64_t computed) noexcept nogil:
        cdef const Item* last = &self._items[self._begins[row + 1] - 1]
        return self.has_items(row) and <int64_t>last.offset + last.tokens > computed

    # Time of encoding the items that the batch being formed encodes, in ns; 0 without prices.
    cdef double encoding_ns(self) noexcept nogil

    # Does the request refer to any item?
    cdef bint holds(self, int32_t row) noexcept nogil

    # Return how many of `tokens` tokens behind `computed` a request can compute in this batch, given its items; it then
    # refers to the items in the cache. encode(): the request is scheduled so, the planned items are encoded.
    cdef int64_t plan(self, int32_t row, int64_t computed, int64_t tokens) except -1 nogil
    cdef int encode(self, int32_t row) except -1 nogil

    # A request scheduled in this batch is taken out again: its encoder budget is free for others. Requests visited
    # before do not see that its items stay unencoded.
    cdef void give_back(self, int32_t row) noexcept nogil

    # `computed` tokens are in KV: drop the references to items before that. Drop all references of a request.
    cdef void pass_by(self, int32_t row, int64_t computed) noexcept nogil
    cdef void let_go(self, int32_t row) noexcept nogil

    # Drop all references and all items.
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
