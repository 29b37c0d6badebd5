"""The content of the blocks of a request's text, as a chain of 64-bit hashes.

A text is the prompt's segments followed by the request's output stream. A block's hash covers its tokens and, through
the hash of the block before it, all tokens in front: equal hashes mean an equal prefix. Chance collisions: among n
blocks there is one with probability n**2 / 2**65, 3e-6 for ten million.

The KV of a token depends on the adapter that computes it: the chain of a request with a LoRA adapter begins with a
salt, so that requests of different adapters share no blocks. Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py,
generate_block_hash_extra_keys, where the adapter's name enters the hash of every block.

Items in a prompt, such as images, enter the hashes as well: a block's hash covers each item with placeholders in the
block, and where the item begins. Source: the same function.

From the first token of a stream that no other request draws on, a text is private: no other request can have the same
prefix.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport COMPLETED, Demand, Item, Request, Segment


cdef struct Cursor:             # a place in a text, at a block boundary
    uint64_t hash               # of all text before it; 0 at the start, before the salt
    int64_t offset              # tokens of the current piece that lie before it
    int32_t piece               # segments of the prompt before it; equal to their number: it is in the output stream


cdef enum:
    NUM_STREAMS = 256           # streams with remembered hashes: system prompts are few and recur


cdef struct StreamHashes:       # of the blocks at the beginning of a stream, under one adapter
    int64_t stream
    uint64_t salt
    int32_t block_size          # 0: the entry is empty
    int32_t count
    int32_t room
    uint64_t* hashes            # [count]


@cython.final
cdef class Content:
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef const Segment* _segments
    cdef const int64_t* _item_begins    # [rows + 1] index of each request's first item; NULL: no request has items
    cdef const Item* _items
    cdef int32_t _num_clients           # rows from here on are prefill legs; a leg's text is its client's
    cdef int32_t* _public_tokens        # [row] leading tokens of its text that others may share; NULL: none of any
    cdef readonly bint has_public_outputs       # of some request others may share the whole text, outputs included
    cdef StreamHashes _streams[NUM_STREAMS]
    cdef object _owners                 # the arrays that the pointers borrow from

    # Leading tokens of a request's text that other requests may share; INT32_MAX: the whole text, outputs included.
    cdef inline int32_t public_tokens(self, int32_t row) noexcept nogil:
        return self._public_tokens[row] if self._public_tokens != NULL else 0

    # The row that owns the text: for a prefill leg its client's.
    cdef inline int32_t _client_of(self, int32_t row) noexcept nogil:
        return row if row < self._num_clients else row - self._num_clients

    # Start value of the hash chain of a request's text; 0: it has no adapter.
    cdef uint64_t salt(self, int32_t row) noexcept nogil

    # Has the request been preempted, so that it may have left blocks behind?
    cdef inline bint has_been_preempted(self, int32_t row) noexcept nogil:
        return self._requests[row].preemptions > 0

    # Has the request run, here or elsewhere? Has it ended? The length of its prompt.
    cdef inline bint has_run(self, int32_t row) noexcept nogil:
        return self._requests[row].scheduled_ns >= 0

    cdef inline bint has_left(self, int32_t row) noexcept nogil:
        return self._requests[row].status >= COMPLETED

    cdef inline int32_t prompt_tokens(self, int32_t row) noexcept nogil:
        return self._requests[row].prompt_tokens

    # Length of its text as far as it is known; call it only while the request does not run.
    cdef inline int64_t text_tokens(self, int32_t row) noexcept nogil:
        return <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens

    # The greatest length that its text may reach.
    cdef inline int64_t most_tokens(self, int32_t row) noexcept nogil:
        return <int64_t>self._requests[row].prompt_tokens + self._demands[row].max_tokens

    # Move the cursor over the next `num_tokens` tokens of a request's text and return its hash, never 0.
    cdef uint64_t advance(self, int32_t row, int32_t num_tokens, Cursor* cursor) noexcept nogil

    # Move it over the next block; hashes cover `ahead` tokens behind their blocks, too, the cursor is as far ahead.
    cdef inline uint64_t next_hash(self, int32_t row, int32_t block_size, int32_t ahead, Cursor* cursor) noexcept nogil:
        return self.advance(row, block_size + (ahead if cursor.hash == 0 else 0), cursor)

    # Hashes and number of the whole blocks in the first segment of a prompt. Valid until the next call.
    cdef const uint64_t* first_hashes(self, int32_t row, int32_t block_size, int32_t* count) except? NULL nogil

    # The place behind the first `num_blocks` (>= 1) blocks of first_hashes.
    cdef Cursor behind(self, int32_t row, int32_t block_size, const uint64_t* hashes,
                       int32_t num_blocks) noexcept nogil

    # Tokens of a request's text before a place; tokens before its first item, INT64_MAX: it has none; a hash continued
    # with the items that reach into the next `num_tokens` tokens.
    cdef int64_t _tokens_before(self, int32_t row, const Cursor* cursor) noexcept nogil
    cdef int64_t _first_item(self, int32_t row) noexcept nogil
    cdef uint64_t _with_items(self, int32_t row, int64_t begin, int32_t num_tokens, uint64_t hash) noexcept nogil

    cdef int _find_public_tokens(self, int32_t num_requests, bint prompts_return) except -1
