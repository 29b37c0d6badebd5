"""The pieces of a text: the longest parts with blocks that are alike."""
from libc.stdint cimport INT32_MAX, INT64_MAX
cimport cython

from simulator.domain.request cimport output_stream, own_stream


cdef inline uint64_t stem_of(uint64_t hash, int64_t stream) noexcept nogil:
    """Hash of a text that goes on with a stream; with `name_of` one to one in each argument, but for 0."""
    cdef uint64_t word = (hash ^ (<uint64_t>stream * <uint64_t>0x9E3779B97F4A7C15)) + <uint64_t>0xD1B54A32D192ED03
    word = (word ^ word >> 32) * <uint64_t>0xC13FA9A902A6328F
    return word ^ word >> 29


@cython.final
cdef class TextPieces:
    """The pieces of the texts of all requests, in blocks of `block_size` tokens.

    content : the texts. ahead : tokens behind a block that its hash covers.
    """

    def __init__(self, Content content, int32_t block_size, int32_t ahead=0):
        self._content, self._block_size, self._ahead = content, block_size, ahead
        self._requests, self._demands, self._segments = content._requests, content._demands, content._segments
        self._item_begins, self._items = content._item_begins, content._items
        self._num_clients = content._num_clients

    cdef void begin(self, int32_t row, Place* place) noexcept nogil:
        place.before = self._content.salt(row)
        place.offset = 0
        place.segment = place.end = 0
        self._read(row, place)

    cdef void _read(self, int32_t row, Place* place) noexcept nogil:
        """Fill in stream and length of its segment."""
        cdef const Demand* demand = &self._demands[row]
        if place.segment >= max(demand.num_segments, 1):
            place.stream, place.length = output_stream(row), INT64_MAX
        elif demand.num_segments == 0:
            place.stream = own_stream(row if row < self._num_clients else row - self._num_clients)
            place.length = self._requests[row].prompt_tokens
        else:
            place.stream = self._segments[demand.segments_begin + place.segment].stream
            place.length = self._segments[demand.segments_begin + place.segment].num_tokens

    cdef void move_to(self, int32_t row, int32_t block, Place* place) noexcept nogil:
        cdef int64_t covered = (<int64_t>block + 1) * self._block_size + self._ahead
        if block < place.end:
            return
        while covered - place.offset > place.length:
            place.before = name_of(stem_of(place.before, place.stream), place.length)
            place.offset += place.length
            place.segment += 1
            self._read(row, place)
        place.end = INT32_MAX
        if place.length < INT64_MAX:
            place.end = <int32_t>((place.offset + place.length - self._ahead) // self._block_size)
        place.stem = stem_of(
            place.before if self._item_begins == NULL else self._with_items(row, covered, place), place.stream)

    cdef uint64_t _with_items(self, int32_t row, int64_t covered, Place* place) noexcept nogil:
        """Add items among the first `covered` tokens to the hash of the text before a piece; end it at the next."""
        cdef uint64_t hash = place.before
        cdef int64_t i
        cdef const Item* item
        for i in range(self._item_begins[row], self._item_begins[row + 1]):
            item = &self._items[i]
            if item.offset >= covered:
                place.end = min(place.end, <int32_t>((item.offset - self._ahead) // self._block_size))
                break
            hash = name_of(stem_of(hash, (<int64_t>item.content << 2) | 3), item.offset)
        return hash
