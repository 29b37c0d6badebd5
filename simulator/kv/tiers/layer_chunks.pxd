"""The chunks of a text that a tier keeps, and that a hit needs, for one group of layers."""
from libc.stdint cimport int32_t, int64_t


cdef struct LayerChunks:        # of a group
    int32_t block_size          # tokens of a block
    int32_t chunk_tokens        # of a chunk: one or more whole blocks
    int32_t window              # tokens; 0: it has none
    int32_t window_chunks       # chunks that a hit must end with; 0: it must have all
    bint is_state               # a chunk is a state of all text before
    bint drops                  # the last chunk of a hit is left, and the last one of an output is not offered while it
                                # grows: a drafter writes its KV of the last place again
    bint is_plain               # all its chunks are kept; else
    int32_t tail_blocks         # chunks with one of the last `tail_blocks` blocks
    int32_t segment_blocks      # of each segment of `segment_blocks`; 0: there are no segments
    int32_t align_blocks        # blocks: tails may also end at multiples of it


cdef struct Tails:              # of one text
    int64_t prompt              # its tokens, less the last; and tokens of a beginning that others share, see
    int64_t junction            # KVCache.junction: tails before both ends are kept if `at_ends`. 0: there is none
    bint at_ends
    int32_t end                 # else tails before the last segment's end, too, in blocks; -1: it is not reached


# Number of chunks needed at the end of a hit of `tokens` tokens.
cdef inline int32_t chunks_needed(const LayerChunks* it, int64_t tokens) noexcept nogil:
    cdef int64_t open = -tokens % it.chunk_tokens      # tokens that the last chunk lacks
    if it.is_state:
        return 1
    open = open + it.chunk_tokens if open < 0 else open
    return <int32_t>max(<int64_t>it.window_chunks, (it.window - 1 + open + it.chunk_tokens - 1) // it.chunk_tokens)


# May a later load need a block? Or any block of a chunk?
cdef bint is_block_kept(const LayerChunks* it, const Tails* tails, int32_t block) noexcept nogil
cdef bint is_kept(const LayerChunks* it, const Tails* tails, int32_t chunk) noexcept nogil
