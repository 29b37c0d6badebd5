"""The KV cache of SGLang: free pages, and a radix tree of text that may be found again.

A sequence's pages outside of the tree are counted; its path in the tree is locked. `free_blocks` counts the pages that
no sequence holds, including pages in the tree that may be evicted.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.base cimport KVCache
from simulator.kv.radix_tree cimport RadixTree


cdef struct Hold:               # of a slot
    int64_t tokens              # that have room
    int64_t shared              # leading tokens that are in the tree
    int64_t counted             # leading tokens that it has inserted into the tree before
    int32_t node                # end of its path in the tree, locked; 0: none


cdef class RadixKV(KVCache):
    cdef readonly RadixTree tree
    cdef int32_t _blank                 # pages that hold nothing
    cdef int32_t _num_members
    cdef Hold* _holds                   # [slot]
    cdef int32_t _found                 # node found by the last lookup

    # Tokens of pages that hold nothing; tokens of pages that hold nothing or may be evicted.
    cdef inline int64_t blank_tokens(self) noexcept nogil:
        return <int64_t>self._blank * self.block_size

    cdef inline int64_t available(self) noexcept nogil:
        return self.blank_tokens() + self.tree.evictable

    # Evict until pages for `tokens` tokens hold nothing, or nothing is left to evict.
    cdef int make_room(self, int64_t tokens) except -1 nogil

    # Find the first `num_tokens` tokens of a text: return the tokens found, and fill in the node for `keep`.
    cdef int32_t find(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil

    # Load `tokens` tokens back for a request: the path from the end of the sequence's own tokens up to `node` is in
    # host memory alone. False: they are too few, or there is no room.
    cdef bint load_back(self, int32_t slot, int32_t node, int64_t tokens, int32_t row) except -1 nogil

    # Let a sequence begin with the tokens found; give it room for `tokens` tokens, which the caller has checked.
    cdef void keep(self, int32_t slot, int32_t node, int64_t found) noexcept nogil
    cdef void take(self, int32_t slot, int64_t tokens) noexcept nogil
    cdef inline int64_t tokens(self, int32_t slot) noexcept nogil:
        return self._holds[slot].tokens

    # Put the first `num_tokens` tokens of a sequence into the tree, whole pages, and lock them.
    cdef int publish(self, int32_t slot, int32_t row, int64_t num_tokens, int64_t prompt_tokens,
                     int64_t priority) except -1 nogil

    # Recount the pages that no sequence holds, after nodes were locked or unlocked.
    cdef void count(self) noexcept nogil
