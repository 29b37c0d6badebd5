"""Which chunks of a text a tier keeps, and needs, of one group of layers."""
from libc.stdint cimport int32_t, int64_t


cdef struct LayerChunks:        # of a group
    int32_t block_size          # tokens of a block
    int32_t chunk_tokens        # of a chunk: some whole blocks
    int32_t window              # tokens; 0: it has none
    int32_t window_chunks       # chunks that a hit must end with; 0: it must have all
    bint is_state               # a chunk is a state of all text before
    bint is_plain               # all its chunks are kept; else
    int32_t tail_blocks         # those with one of so many last blocks
    int32_t segment_blocks      # of each segment of so many; 0: there are none
    int32_t align_blocks        # blocks of the places at which such tails may end besides


cdef struct Tails:              # of one text
    int64_t prompt              # its tokens, less the last; and of the beginning that others have, see
    int64_t junction            # KVCache.junction: in front of these ends tails are kept if `at_ends`. 0: there is none
    bint at_ends
    int32_t end                 # else in front of the last segment's end, too, in blocks; -1: it is not reached


# Chunks that a hit must end with, which ends behind so many tokens.
cdef inline int32_t chunks_needed(const LayerChunks* it, int64_t tokens) noexcept nogil:
    cdef int64_t open = -tokens % it.chunk_tokens      # of the last chunk
    if it.is_state:
        return 1
    open = open + it.chunk_tokens if open < 0 else open
    return <int32_t>max(<int64_t>it.window_chunks, (it.window - 1 + open + it.chunk_tokens - 1) // it.chunk_tokens)


# May a later load need any block of a chunk?
cdef bint is_kept(const LayerChunks* it, const Tails* tails, int32_t chunk) noexcept nogil
