"""A zlib stream (RFC 1950, 1951) of byte planes: long texts of like bytes, of which most are constant, or noise.

It is 2 to 7 times as fast as zlib, and its results are about as long (results/README.md), since it takes each plane for
itself, classifies it first, and then uses one method only: store it, or code its runs, or earlier bytes, 8
or more at a time, or its bytes with a Huffman code of their own. Every inflater reads it.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    STORED_BYTES = 65535        # in a stored block, at most
    SLACK_BYTES = 32            # beyond its content that a stream may write to


cdef struct Match:              # earlier bytes that occur again
    int32_t literals            # bytes before it without a match
    int32_t length
    int32_t distance


cdef struct Deflate:
    uint8_t* out                # room for deflate_bound() bytes
    Match* matches              # room for one for each 8 bytes of a plane
    int64_t size                # bytes written
    uint64_t bits               # not written yet, the lowest first
    int32_t num_bits            # number of bits not written yet, < 32 between calls
    bint is_open                # a block of the fixed code is not ended yet
    int32_t last                # byte before, which a run may repeat; -1: there is none
    uint32_t sum_bytes          # Adler-32, both halves
    uint32_t sum_sums


cdef struct Plane:
    const uint8_t* bytes        # [length]
    int64_t length              # >= 1
    uint32_t sum_bytes          # Adler-32 of the plane, but begun with 0; set when it is put, like all below
    uint32_t sum_sums
    int64_t first_bit, end_bit  # where they are in the stream
    bint is_stored              # in blocks with a form that depends on their position


# Bytes that `planes` planes of `length` bytes each may take.
cdef inline int64_t deflate_bound(int64_t planes, int64_t length) noexcept nogil:
    return planes * (length + 8 * (length // STORED_BYTES + 1)) + SLACK_BYTES

cdef void begin_stream(Deflate* stream, uint8_t* out, Match* matches) noexcept nogil

# `length` times one byte.
cdef void put_constant(Deflate* stream, uint8_t byte, int64_t length) noexcept nogil

# A plane that is not constant.
cdef void put_plane(Deflate* stream, Plane* plane) noexcept nogil

# The bytes of a plane that was put before, again.
cdef void put_again(Deflate* stream, const Plane* plane) noexcept nogil

# End the stream: `size` is final.
cdef void end_stream(Deflate* stream) noexcept nogil
