"""The KV cache of SGLang: free pages, and a radix tree of what may be found again.

What a sequence owns outside of the tree is counted, page by page; what it has in it is locked. `free_blocks` counts
pages that nobody holds, those in the tree that may be evicted included.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.base cimport KVCache
from simulator.kv.radix_tree cimport RadixTree


cdef struct Hold:               # of a slot
    int64_t tokens              # that it has room for
    int64_t shared              # leading ones of these that are in the tree
    int64_t counted             # leading ones that it has put into the tree before
    int32_t node                # of the tree, locked; 0: none


cdef class RadixKV(KVCache):
    cdef readonly RadixTree tree
    cdef int32_t _blank                 # pages that hold nothing
    cdef int32_t _num_members
    cdef Hold* _holds                   # [slot]
    cdef int32_t _found                 # node of the last lookup

    # Tokens that nobody holds: those of pages that hold nothing, and with what may be evicted.
    cdef inline int64_t blank_tokens(self) noexcept nogil:
        return <int64_t>self._blank * self.block_size

    cdef inline int64_t available(self) noexcept nogil:
        return self.blank_tokens() + self.tree.evictable

    # Evict until so many tokens' pages hold nothing, or nothing is left to evict.
    cdef int make_room(self, int64_t tokens) except -1 nogil

    # Find the first `num_tokens` tokens of a text; tokens, and the node for `keep`.
    cdef int32_t find(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil

    # What was found up to a node is in host memory alone, behind the pages with which a sequence began: bring these
    # tokens back, for a request. False: they are too few, or there is no room.
    cdef bint load_back(self, int32_t slot, int32_t node, int64_t tokens, int32_t row) except -1 nogil

    # A sequence begins with what was found; it has room for so many tokens from now on, which there is.
    cdef void keep(self, int32_t slot, int32_t node, int64_t found) noexcept nogil
    cdef void take(self, int32_t slot, int64_t tokens) noexcept nogil
    cdef inline int64_t tokens(self, int32_t slot) noexcept nogil:
        return self._holds[slot].tokens

    # Put the first `num_tokens` tokens of a sequence into the tree, whole pages, and lock them.
    cdef int publish(self, int32_t slot, int32_t row, int64_t num_tokens, int64_t prompt_tokens,
                     int64_t priority) except -1 nogil

    # Count the pages that nobody holds: something was locked in the tree, or unlocked.
    cdef void count(self) noexcept nogil
