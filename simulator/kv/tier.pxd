"""KV beyond the blocks of a replica: in host memory, on disk, at another replica. What a scheduler may ask of it.

vLLM's word for what stands between scheduler and tier is KV connector. A tier holds leading tokens of texts. A
scheduler that admits a request asks it for those behind the tokens that it found in its own KV cache (`match`), gives
them blocks and loads them (`load`); a request that has ended may have to leave its blocks where they are, for the tier
to read (`keep_until`). What is on the way is in the scheduler's books (scheduling/transfers.pxd); the replica takes
notice of what has come when an iteration ends, as vLLM's worker reports it then, or while it has nothing to do.
"""
from libc.stdint cimport int32_t, int64_t


cdef struct External:           # what a tier has of a text, behind the tokens found in the KV cache
    int64_t tokens              # 0: nothing
    bint comes_later            # the request waits, with its blocks, until they are there; else they are loaded within
                                # the iteration that admits it


cdef class KVTier:
    # What it has of the text of a request, whose first `local_tokens` (whole blocks) were found in the KV cache. Where
    # it comes within the iteration, at least one token of the text must be left to compute.
    cdef External match(self, int32_t row, int64_t local_tokens) noexcept nogil

    # These tokens have blocks now: they are on the way from `now_ns` on. When they are there; of no meaning unless
    # they come later.
    cdef int64_t load(self, int32_t row, External found, int64_t now_ns) except -1 nogil

    # A request completes: until when its blocks stay as they are; -1: they are free at once.
    cdef int64_t keep_until(self, int32_t row, int64_t now_ns) noexcept nogil

    # Tokens that it has loaded for a request since it came to its replica.
    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil
