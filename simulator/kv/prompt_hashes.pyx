"""The hashes of the blocks at the beginning of a prompt, for lookups in caches."""
from libc.stdlib cimport free
from libc.string cimport memcpy

from simulator.core.memory cimport resize
from simulator.kv.content cimport Cursor


cdef int read_hashes(Content content, int32_t row, int32_t block_size, int32_t num_blocks, uint64_t* hashes,
                     int32_t ahead=0) except -1 nogil:
    cdef int32_t known = 0, i
    cdef const uint64_t* first
    cdef Cursor cursor
    if num_blocks == 0:
        return 0
    cursor.hash, cursor.offset, cursor.piece = 0, 0, 0
    first = content.first_hashes(row, block_size, &known)
    known = min(known, num_blocks) if ahead == 0 else 0
    if known > 0:
        memcpy(hashes, first, known * sizeof(uint64_t))
        cursor = content.behind(row, block_size, hashes, known)
    for i in range(known, num_blocks):
        hashes[i] = content.next_hash(row, block_size, ahead, &cursor)
    return 0


def hashes_of(Content content, int32_t row, int32_t block_size, int32_t num_blocks):
    """Return the hashes of the first whole blocks of a request's text, as a list.

    The text goes on from the prompt to the output.
    """
    cdef uint64_t* hashes = NULL
    cdef int32_t i
    try:
        resize(&hashes, max(num_blocks, 1) * sizeof(uint64_t))
        read_hashes(content, row, block_size, num_blocks, hashes)
        return [hashes[i] for i in range(num_blocks)]
    finally:
        free(hashes)
