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
    cdef uint64_t* _words       # [chunk_rows] some bytes of each row
    cdef uint64_t* _shown       # [words of a row] ones where bits belong to a field
    cdef uint8_t* _bytes        # [row_bytes, chunk_rows]
    cdef Plane* _planes         # [row_bytes] planes of the chunk that are not constant
    cdef int32_t _num_planes
    cdef Match* _matches        # [an eighth of chunk_rows] found in the plane at hand
    cdef uint8_t* _out
    cdef object _packed         # the array behind _out

    def __init__(self, int64_t chunk_rows, dtype):
        self.chunk_rows, self.row_bytes = chunk_rows, dtype.itemsize
        words, shown = np.empty(chunk_rows, np.uint64), _shown_words(dtype)
        planes = np.empty(self.row_bytes * sizeof(Plane), np.uint8)
        bytes_ = np.empty(self.row_bytes * chunk_rows, np.uint8)
        self._packed = np.empty(deflate_bound(self.row_bytes, chunk_rows) + CHECK_BYTES, np.uint8)
        matches = np.empty((chunk_rows // 8 + 1) * sizeof(Match), np.uint8)
        self._owners = words, shown, planes, bytes_, matches
        cdef uint64_t[::1] word_view = words, shown_view = shown
        cdef uint8_t[::1] plane_view = planes, byte_view = bytes_, out_view = self._packed
        cdef uint8_t[::1] match_view = matches
        self._words, self._shown, self._planes = &word_view[0], &shown_view[0], <Plane*>&plane_view[0]
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
        cdef uint64_t varying
        cdef int64_t first = 0
        cdef int32_t width, byte
        memset(self._words + num_rows, 0, (self.chunk_rows - num_rows) * sizeof(uint64_t))
        self._num_planes = 0
        begin_stream(&stream, self._out, self._matches)
        while first < self.row_bytes:
            width = <int32_t>min(<int64_t>WORD, self.row_bytes - first)
            varying = self._gather(rows + first, num_rows, width, self._shown[first // WORD])
            for byte in range(width):
                if (varying >> (8 * byte)) & 0xFF == 0:
                    put_constant(&stream, <uint8_t>(self._words[0] >> (8 * byte)), self.chunk_rows)
                else:
                    self._put(&stream, 8 * byte)
            first += width
        end_stream(&stream)
        put_fletcher32(self._out, stream.size)
        return stream.size + CHECK_BYTES

    cdef uint64_t _gather(self, const uint8_t* row, int64_t num_rows, int32_t width, uint64_t shown) noexcept nogil:
        """Gather some bytes of each row; return the bits that differ between rows."""
        cdef uint64_t varying = 0, word
        cdef int64_t i
        cdef int32_t byte
        for i in range(num_rows):
            if width == WORD:
                word = (<uint64_t>row[0] | <uint64_t>row[1] << 8 | <uint64_t>row[2] << 16 | <uint64_t>row[3] << 24
                        | <uint64_t>row[4] << 32 | <uint64_t>row[5] << 40 | <uint64_t>row[6] << 48
                        | <uint64_t>row[7] << 56)
            else:
                word = 0
                for byte in range(width):
                    word |= <uint64_t>row[byte] << (8 * byte)
            word &= shown
            self._words[i] = word
            varying |= word ^ self._words[0]
            row += self.row_bytes
        return varying | (self._words[0] if num_rows < self.chunk_rows else 0)

    cdef void _put(self, Deflate* stream, int32_t shift) noexcept nogil:
        """Put one byte of each word; some columns are equal, often."""
        cdef Plane* plane = &self._planes[self._num_planes]
        cdef uint8_t* bytes = self._bytes + self._num_planes * self.chunk_rows
        cdef int64_t i
        for i in range(self.chunk_rows):
            bytes[i] = <uint8_t>(self._words[i] >> shift)
        for i in range(self._num_planes):
            if memcmp(self._planes[i].bytes, bytes, self.chunk_rows) == 0:
                put_again(stream, &self._planes[i])
                return
        plane.bytes, plane.length = bytes, self.chunk_rows
        put_plane(stream, plane)
        self._num_planes += 1


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
