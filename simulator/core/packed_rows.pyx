"""Rows of a table as HDF5 stores a chunk that passed its filters shuffle, deflate and Fletcher32, at memory speed.

HDF5 itself would write equal bytes, at 200 to 400 ns per row of 72 bytes; see results/README.md.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset
cimport cython

from simulator.core.deflate cimport (
    Deflate, Match, Plane, begin_stream, deflate_bound, end_stream, put_again, put_constant, put_plane)

import numpy as np

cdef enum:
    WORD = 8                    # bytes of a row that are looked at together
    BLOCK_ROWS = 256            # spread over the planes at once: in the nearest cache, with a word of each
    FLETCHER_WORDS = 360        # summed before the high half is added to the low one
    CHECK_BYTES = 4


@cython.final
cdef class RowPacker:
    """Packs rows in chunks of `chunk_rows` rows.

    chunk_rows : rows of a chunk.
    dtype : of a row; bytes that belong to no field are written as 0.
    """
    cdef readonly int64_t chunk_rows, row_bytes
    cdef object _owners         # arrays behind the pointers
    cdef int32_t _num_words     # of a row, the last may be shorter
    cdef uint64_t* _shown       # [_num_words] ones where bits belong to a field
    cdef uint64_t* _first       # [_num_words] of the first row of the chunk
    cdef uint64_t* _varying     # [_num_words] ones where a row so far differs from the first
    cdef uint8_t* _bytes        # [row_bytes, chunk_rows] of each plane; unset where all bytes are equal
    cdef Plane* _planes         # [row_bytes] planes of the chunk that are not constant
    cdef int32_t _num_planes
    cdef Match* _matches        # [an eighth of chunk_rows] found in the plane at hand
    cdef uint8_t* _out
    cdef object _packed         # the array behind _out

    def __init__(self, int64_t chunk_rows, dtype):
        self.chunk_rows, self.row_bytes = chunk_rows, dtype.itemsize
        shown = _shown_words(dtype)
        words = np.empty(2 * len(shown), np.uint64)
        planes = np.empty(self.row_bytes * sizeof(Plane), np.uint8)
        bytes_ = np.empty(self.row_bytes * chunk_rows, np.uint8)
        self._packed = np.empty(deflate_bound(self.row_bytes, chunk_rows) + CHECK_BYTES, np.uint8)
        matches = np.empty((chunk_rows // 8 + 1) * sizeof(Match), np.uint8)
        self._owners = words, shown, planes, bytes_, matches
        cdef uint64_t[::1] word_view = words, shown_view = shown
        cdef uint8_t[::1] plane_view = planes, byte_view = bytes_, out_view = self._packed
        cdef uint8_t[::1] match_view = matches
        self._num_words, self._shown, self._planes = len(shown), &shown_view[0], <Plane*>&plane_view[0]
        self._first, self._varying = &word_view[0], &word_view[0] + self._num_words
        self._bytes, self._out, self._matches = &byte_view[0], &out_view[0], <Match*>&match_view[0]

    def pack(self, rows):
        """Return rows as a chunk, zeros after them: an array of uint8; the next call reuses its memory.

        rows : contiguous array of 1 to `chunk_rows` rows.
        """
        cdef const uint8_t[::1] view = rows.view(f"V{self.row_bytes}").view(np.uint8)
        cdef int64_t num_rows = len(rows), size
        if not 0 < num_rows <= self.chunk_rows:
            raise ValueError(f"a chunk has 1 to {self.chunk_rows} rows, not {num_rows}")
        with nogil:
            size = self._pack(&view[0], num_rows)
        return self._packed[:size]

    cdef int64_t _pack(self, const uint8_t* rows, int64_t num_rows) noexcept nogil:
        cdef Deflate stream
        cdef int64_t byte
        self._spread(rows, num_rows)
        self._num_planes = 0
        begin_stream(&stream, self._out, self._matches)
        for byte in range(self.row_bytes):
            if byte_of(self._varying, byte) == 0:
                put_constant(&stream, byte_of(self._first, byte), self.chunk_rows)
            else:
                self._put(&stream, self._bytes + byte * self.chunk_rows)
        end_stream(&stream)
        put_fletcher32(self._out, stream.size)
        return stream.size + CHECK_BYTES

    cdef void _spread(self, const uint8_t* rows, int64_t num_rows) noexcept nogil:
        """Fill the planes with bytes that differ between rows; behind the last row are zeros."""
        cdef uint64_t words[BLOCK_ROWS]
        cdef int64_t begin = 0, count, byte
        cdef int32_t word
        cdef uint64_t before
        for word in range(self._num_words):
            self._first[word] = word_at(rows + word * WORD, self._width(word)) & self._shown[word]
            self._varying[word] = 0
        while begin < num_rows:
            count = min(num_rows - begin, <int64_t>BLOCK_ROWS)
            for word in range(self._num_words):
                before = self._varying[word]
                self._varying[word] |= self._gather(rows + begin * self.row_bytes, word, count, words)
                if self._varying[word] != 0:
                    self._take(word, before, words, begin, count)
            begin += count
        if num_rows < self.chunk_rows:
            for byte in range(self.row_bytes):
                self._end(byte, num_rows)

    cdef int32_t _width(self, int32_t word) noexcept nogil:
        return <int32_t>min(<int64_t>WORD, self.row_bytes - word * WORD)

    cdef uint64_t _gather(self, const uint8_t* rows, int32_t word, int64_t count, uint64_t* words) noexcept nogil:
        """Gather a word of each row; return the bits that differ from the first row of the chunk."""
        cdef const uint8_t* place = rows + word * WORD
        cdef uint64_t varying = 0, shown = self._shown[word], first = self._first[word]
        cdef int64_t row_bytes = self.row_bytes, i
        cdef int32_t width = self._width(word)
        if width == WORD:
            for i in range(count):
                words[i] = word_at(place + i * row_bytes, WORD) & shown
                varying |= words[i] ^ first
        else:
            for i in range(count):
                words[i] = word_at(place + i * row_bytes, width) & shown
                varying |= words[i] ^ first
        return varying

    cdef void _take(self, int32_t word, uint64_t before, const uint64_t* words, int64_t begin,
                    int64_t count) noexcept nogil:
        """Fill in bytes of a block, in planes that vary; those that did not vary before get the rows before, too."""
        cdef uint8_t* plane
        cdef int32_t byte
        for byte in range(self._width(word)):
            if (self._varying[word] >> (8 * byte)) & 0xFF == 0:
                continue
            plane = self._bytes + (WORD * word + byte) * self.chunk_rows
            if (before >> (8 * byte)) & 0xFF == 0:
                memset(plane, <int>((self._first[word] >> (8 * byte)) & 0xFF), begin)
            take_byte(words, count, 8 * byte, plane + begin)

    cdef void _end(self, int64_t byte, int64_t num_rows) noexcept nogil:
        """Put zeros behind the last row of a plane, which then varies unless all is zero."""
        cdef uint8_t* plane = self._bytes + byte * self.chunk_rows
        if byte_of(self._varying, byte) == 0:
            if byte_of(self._first, byte) == 0:
                return
            memset(plane, byte_of(self._first, byte), num_rows)
            self._varying[byte // WORD] |= <uint64_t>0xFF << (8 * (byte % WORD))
        memset(plane + num_rows, 0, self.chunk_rows - num_rows)

    cdef void _put(self, Deflate* stream, const uint8_t* bytes) noexcept nogil:
        """Put a plane; some are equal, often."""
        cdef Plane* plane = &self._planes[self._num_planes]
        cdef int64_t i
        for i in range(self._num_planes):
            if memcmp(self._planes[i].bytes, bytes, self.chunk_rows) == 0:
                put_again(stream, &self._planes[i])
                return
        plane.bytes, plane.length = bytes, self.chunk_rows
        put_plane(stream, plane)
        self._num_planes += 1


cdef inline uint64_t word_at(const uint8_t* place, int32_t width) noexcept nogil:
    cdef uint64_t word = 0
    cdef int32_t byte
    if width == WORD:
        return (<uint64_t>place[0] | <uint64_t>place[1] << 8 | <uint64_t>place[2] << 16 | <uint64_t>place[3] << 24
                | <uint64_t>place[4] << 32 | <uint64_t>place[5] << 40 | <uint64_t>place[6] << 48
                | <uint64_t>place[7] << 56)
    for byte in range(width):
        word |= <uint64_t>place[byte] << (8 * byte)
    return word


cdef inline uint8_t byte_of(const uint64_t* words, int64_t byte) noexcept nogil:
    return <uint8_t>(words[byte // WORD] >> (8 * (byte % WORD)))


cdef void take_byte(const uint64_t* words, int64_t count, int32_t shift, uint8_t* out) noexcept nogil:
    """Take one byte of each word; compilers see that writes to `out` change no argument."""
    cdef int64_t i
    for i in range(count):
        out[i] = <uint8_t>(words[i] >> shift)


def _shown_words(dtype):
    """Return where a row has fields, 8 bytes a word."""
    shown = np.zeros(-(-dtype.itemsize // WORD) * WORD, np.uint8)
    for kind, first, *_ in dtype.fields.values() if dtype.fields else [(dtype, 0)]:
        shown[first:first + kind.itemsize] = 255
    return shown.view("<u8").astype(np.uint64)


cdef void put_fletcher32(uint8_t* data, int64_t size) noexcept nogil:
    """Append HDF5's checksum (H5_checksum_fletcher32 in its H5checksum.c).

    It is one of big-endian words of 16 bits, and itself little-endian.
    """
    cdef uint32_t low = 0, high = 0, check
    cdef int64_t i, first = 0, last, num_words = size // 2
    while first < num_words:
        last = min(first + FLETCHER_WORDS, num_words)
        for i in range(first, last):
            low += (<uint32_t>data[2 * i] << 8) | data[2 * i + 1]
            high += low
        low = (low & 0xFFFF) + (low >> 16)
        high = (high & 0xFFFF) + (high >> 16)
        first = last
    if size % 2 == 1:
        low += <uint32_t>data[size - 1] << 8
        high += low
        low = (low & 0xFFFF) + (low >> 16)
        high = (high & 0xFFFF) + (high >> 16)
    low = (low & 0xFFFF) + (low >> 16)
    high = (high & 0xFFFF) + (high >> 16)
    check = (high << 16) | low
    for i in range(CHECK_BYTES):
        data[size + i] = <uint8_t>(check >> (8 * i))
