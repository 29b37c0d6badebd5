"""The hashes of the blocks at the beginning of a prompt, for lookups in caches."""
from libc.stdint cimport int32_t, uint64_t

from simulator.kv.content cimport Content


# Write the hashes of the first `num_blocks` whole blocks of the prompt of request `row`, [num_blocks], each with the
# `ahead` tokens behind it. For beginnings that many prompts share they are looked up, not computed.
cdef int read_hashes(Content content, int32_t row, int32_t block_size, int32_t num_blocks, uint64_t* hashes,
                     int32_t ahead=*) except -1 nogil
