"""The pieces of a text: the longest parts with blocks that are alike but for their number.

A piece is what one token stream contributes to a text, up to the next item of the prompt. Texts that agree before a
piece and go on with the same stream agree block by block as long as both have tokens of that stream: one hash of what
is before, the stream and a number of tokens name a block, and no other block needs to be read. A block belongs to the
piece in which it ends (with hashes that look ahead: in which the tokens that its hash covers end).
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport Demand, Item, Request, Segment
from simulator.kv.content cimport Content


cdef struct Place:              # a piece of a text
    uint64_t before             # hash of all text before its stream
    uint64_t stem               # the same with the items of the prompt before its blocks end, and with its stream
    int64_t stream
    int64_t offset              # tokens of the text before its stream
    int64_t length              # tokens of its stream
    int32_t segment             # segments of the prompt before it; equal to their number: it is in the output stream
    int32_t end                 # its blocks are in front of this one


# The name of the block at the end of so many tokens of the stream of a piece with this stem; never 0.
cdef inline uint64_t name_of(uint64_t stem, int64_t num_tokens) noexcept nogil:
    cdef uint64_t word = (stem + <uint64_t>num_tokens * <uint64_t>0x9E3779B97F4A7C15) * <uint64_t>0xD1B54A32D192ED03
    word = (word ^ word >> 32) * <uint64_t>0x9E3779B97F4A7C15
    word ^= word >> 29
    return word if word != 0 else 1


@cython.final
cdef class TextPieces:
    cdef Content _content
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef const Segment* _segments
    cdef const int64_t* _item_begins
    cdef const Item* _items
    cdef int32_t _num_clients
    cdef int32_t _block_size
    cdef int32_t _ahead         # tokens behind a block that its hash covers

    # The beginning of a request's text, before its first block. Go on from there to the piece of a block.
    cdef void begin(self, int32_t row, Place* place) noexcept nogil
    cdef void move_to(self, int32_t row, int32_t block, Place* place) noexcept nogil

    # Tokens of the stream of a piece up to the end of a block.
    cdef inline int32_t tokens_to(self, const Place* place, int32_t block) noexcept nogil:
        return <int32_t>((<int64_t>block + 1) * self._block_size + self._ahead - place.offset)

    cdef void _read(self, int32_t row, Place* place) noexcept nogil
    cdef uint64_t _with_items(self, int32_t row, int64_t covered, Place* place) noexcept nogil
