"""The content of the blocks of a request's text, as a chain of 64-bit hashes."""
from libc.stdint cimport INT32_MAX, INT64_MAX
from libc.stdlib cimport free, realloc
cimport cython

import numpy as np

from simulator.core.errors cimport out_of_memory
from simulator.domain.request cimport output_stream, own_stream

cdef extern from *:
    """
    #include <stdint.h>
    /* 64 x 64 -> 128 bit product folded to 64 bits: one multiplication mixes both words (wyhash, Wang Yi 2019). */
    static inline uint64_t sim_fold_product(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t fold_product "sim_fold_product"(uint64_t a, uint64_t b) noexcept nogil

cdef enum:
    OFFSET_SHIFT = 24           # a piece of a block is shorter than 2**24 tokens

# Odd, and without a pattern in their bits: 2**64 / x for the positive roots of x**n = x + 1, n = 2, 4, 3.
cdef uint64_t SALT_A = 0x9E3779B97F4A7C15
cdef uint64_t SALT_B = 0xD1B54A32D192ED03
cdef uint64_t SALT_C = 0xC13FA9A902A6328F


cdef inline int64_t item_stream(int64_t content) noexcept nogil:
    """Code of an item among those of token streams, which have other low bits."""
    return (content << 2) | 3


cdef inline uint64_t extended(uint64_t hash, int64_t stream, int64_t offset, int64_t num_tokens) noexcept nogil:
    """Hash of a text that goes on with tokens offset .. offset + num_tokens - 1 of a stream."""
    return fold_product(hash ^ (<uint64_t>stream * SALT_A) ^ SALT_B,
                        ((<uint64_t>offset << OFFSET_SHIFT) | <uint64_t>num_tokens) * SALT_B ^ SALT_A)


@cython.final
cdef class Content:
    """The texts of all requests of a workload.

    workload : lends its `requests`, `demands` and `segments`; with disaggregated prefill its prefill legs are included,
        and the prompt of a leg is its client's.
    prompts_return : a replica may receive a prompt that it has computed for another row: other rows may share it.
    """

    def __init__(self, workload, prompts_return=False):
        cdef const Request[::1] requests
        cdef const Demand[::1] demands
        cdef const Segment[::1] segments
        cdef const int64_t[::1] begins
        cdef const Item[::1] items
        cdef int32_t[::1] public_tokens
        self._owners = (workload.requests, workload.demands, workload.segments, workload.items)
        if workload.items is not None and len(workload.items.table):
            begins, items = workload.items.begins, workload.items.table
            self._item_begins, self._items = &begins[0], &items[0]
        requests, demands, segments = workload.requests, workload.demands, workload.segments
        self._requests = &requests[0] if len(requests) else NULL
        self._num_clients = <int32_t>(len(requests) - workload.num_prefill_legs)
        self._demands = &demands[0] if len(demands) else NULL
        self._segments = &segments[0] if len(segments) else NULL
        if len(segments) or prompts_return:
            public_tokens = workload.chunks.public_tokens if workload.chunks is not None else (
                np.zeros(len(requests) + 1, np.int32))
            self._public_tokens = &public_tokens[0]
            self._owners += (public_tokens,)
            if workload.chunks is None:
                self._find_public_tokens(len(requests), prompts_return)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(NUM_STREAMS):
            free(self._streams[i].hashes)

    cdef int _find_public_tokens(self, int32_t num_requests, bint prompts_return) except -1:
        cdef int32_t row, i
        cdef int64_t stream, owner, tokens
        cdef const Segment* segment
        for row in range(num_requests):         # others draw on a stream of the owner: all of its text is public
            for i in range(self._demands[row].num_segments):
                stream = self._segments[self._demands[row].segments_begin + i].stream
                owner = stream >> 2
                if stream & 3 and owner != self._client_of(row) and 0 <= owner < num_requests:
                    self._public_tokens[owner] = INT32_MAX
                    self.has_public_outputs = True
        for row in range(num_requests):
            tokens = 0
            if self._public_tokens[row] == INT32_MAX:
                continue
            if row >= self._num_clients:
                self._public_tokens[row] = self._public_tokens[self._client_of(row)]
                continue
            for i in range(self._demands[row].num_segments):
                segment = &self._segments[self._demands[row].segments_begin + i]
                if segment.stream & 3 and segment.stream >> 2 == row:
                    break
                tokens += segment.num_tokens
            if prompts_return:
                tokens = self._requests[row].prompt_tokens
            self._public_tokens[row] = <int32_t>min(tokens, <int64_t>INT32_MAX - 1)
        return 0

    cdef uint64_t salt(self, int32_t row) noexcept nogil:
        return <uint64_t>(<int64_t>self._demands[row].adapter + 1) * SALT_C

    cdef int64_t _first_item(self, int32_t row) noexcept nogil:
        if self._item_begins == NULL or self._item_begins[row] == self._item_begins[row + 1]:
            return INT64_MAX
        return self._items[self._item_begins[row]].offset

    cdef int64_t _tokens_before(self, int32_t row, const Cursor* cursor) noexcept nogil:
        cdef int64_t tokens = cursor.offset
        cdef int32_t i
        if self._demands[row].num_segments == 0:
            return tokens + self._requests[row].prompt_tokens if cursor.piece > 0 else tokens
        for i in range(cursor.piece):
            tokens += self._segments[self._demands[row].segments_begin + i].num_tokens
        return tokens

    cdef uint64_t _with_items(self, int32_t row, int64_t begin, int32_t num_tokens, uint64_t hash) noexcept nogil:
        cdef const Item* item
        cdef int64_t i
        for i in range(self._item_begins[row], self._item_begins[row + 1]):
            item = &self._items[i]
            if item.offset >= begin + num_tokens:
                break
            if <int64_t>item.offset + item.tokens > begin:
                hash = extended(hash, item_stream(item.content), item.offset - begin, 0)
        return hash

    cdef uint64_t advance(self, int32_t row, int32_t num_tokens, Cursor* cursor) noexcept nogil:
        cdef int64_t left = num_tokens, stream, length, taken
        cdef int32_t num_pieces = max(self._demands[row].num_segments, 1)
        cdef uint64_t hash = cursor.hash if cursor.hash != 0 else self.salt(row)
        cdef const Segment* segment
        if self._first_item(row) < INT64_MAX:
            hash = self._with_items(row, self._tokens_before(row, cursor), num_tokens, hash)
        while left > 0:
            if cursor.piece >= num_pieces:
                stream, length = output_stream(row), INT64_MAX
            elif self._demands[row].num_segments == 0:
                stream, length = own_stream(self._client_of(row)), self._requests[row].prompt_tokens
            else:
                segment = &self._segments[self._demands[row].segments_begin + cursor.piece]
                stream, length = segment.stream, segment.num_tokens
            taken = min(length - cursor.offset, left)
            if taken > 0:
                hash = extended(hash, stream, cursor.offset, taken)
            left -= taken
            cursor.offset += taken
            if cursor.offset == length:
                cursor.piece += 1
                cursor.offset = 0
        cursor.hash = hash if hash != 0 else 1
        return cursor.hash

    cdef const uint64_t* first_hashes(self, int32_t row, int32_t block_size, int32_t* count) except? NULL nogil:
        cdef const Segment* segment
        cdef StreamHashes* entry
        cdef uint64_t* hashes
        cdef uint64_t hash, salt = self.salt(row)
        cdef int32_t whole, i
        count[0] = 0
        if self._demands[row].num_segments == 0:
            return NULL
        segment = &self._segments[self._demands[row].segments_begin]
        entry = &self._streams[((<uint64_t>segment.stream ^ salt) * SALT_A + <uint64_t>block_size * SALT_B) >> 56]
        if entry.stream != segment.stream or entry.salt != salt or entry.block_size != block_size:
            entry.stream, entry.salt, entry.block_size, entry.count = segment.stream, salt, block_size, 0
        whole = <int32_t>(min(segment.num_tokens, self._first_item(row)) // block_size)     # others may have these
        if whole > entry.room:
            hashes = <uint64_t*>realloc(entry.hashes, whole * sizeof(uint64_t))
            if hashes == NULL:
                out_of_memory()
                return NULL
            entry.hashes, entry.room = hashes, whole
        for i in range(entry.count, whole):
            hash = extended(entry.hashes[i - 1] if i > 0 else salt, segment.stream, <int64_t>i * block_size, block_size)
            entry.hashes[i] = hash if hash != 0 else 1
        entry.count = max(entry.count, whole)
        count[0] = whole
        return entry.hashes

    cdef Cursor behind(self, int32_t row, int32_t block_size, const uint64_t* hashes,
                       int32_t num_blocks) noexcept nogil:
        cdef Cursor cursor
        cursor.hash = hashes[num_blocks - 1]
        cursor.offset = <int64_t>num_blocks * block_size
        cursor.piece = 0
        if cursor.offset == self._segments[self._demands[row].segments_begin].num_tokens:
            cursor.piece, cursor.offset = 1, 0
        return cursor
