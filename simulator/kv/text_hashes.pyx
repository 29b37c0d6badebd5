"""The hashes of the blocks of a text that other requests may share, for studies."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

import numpy as np

from simulator.kv.content cimport Content, Cursor


def text_hashes(Content content, int32_t row, int32_t block_size, int64_t num_tokens):
    """Return the hashes of whole blocks at a text's beginning, uint64 (blocks,).

    Blocks behind the part that other requests may share are left out. Equal hashes mean equal text up to the end of the
    block.
    """
    cdef int32_t count = <int32_t>(min(num_tokens, <int64_t>content.public_tokens(row)) // block_size), i
    cdef Cursor cursor
    hashes = np.empty(count, np.uint64)
    cdef uint64_t[::1] written = hashes
    memset(&cursor, 0, sizeof(Cursor))
    for i in range(count):
        written[i] = content.next_hash(row, block_size, 0, &cursor)
    return hashes
