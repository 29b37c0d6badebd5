"""A Huffman code for the bytes of a plane, with the bits that deflate gives it (RFC 1951, section 3.2.2)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    END_OF_BLOCK = 256          # a symbol like the bytes
    NUM_LITERALS = 257          # symbols: bytes, and the end of the block


cdef struct Code:               # of a symbol, its first bit the lowest
    uint16_t bits
    uint16_t length


cdef struct OwnCode:            # of one plane
    Code codes[NUM_LITERALS]    # length 0: there is none
    int32_t counts[NUM_LITERALS]        # how often each symbol occurs
    uint8_t lengths[NUM_LITERALS]       # lengths of the codes, 14 at most


# Make the code of `length` bytes. False: they look like noise, and nothing was made.
cdef bint make_code(OwnCode* code, const uint8_t* plane, int64_t length) noexcept nogil

# A code with its highest bit first, reversed.
cdef uint32_t reversed_bits(uint32_t code, int32_t length) noexcept nogil
