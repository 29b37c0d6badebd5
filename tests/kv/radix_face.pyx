# cython: language_level=3
"""The methods of a RadixKV and its tree as Python functions. The tests compile this against the package's headers."""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.radix cimport RadixKV
from simulator.kv.radix_tree cimport Node


cdef class RadixFace:
    cdef readonly RadixKV kv

    def __init__(self, RadixKV kv, num_slots):
        self.kv = kv
        kv.reserve_slots(num_slots)

    # ---- pages

    def begin(self, slot, row, num_tokens, room):
        """Begin with what is found of so many tokens, if there is room for so many; return what was found, or -1."""
        cdef int32_t node = 0, found = self.kv.find(row, num_tokens, &node)
        cdef int64_t page = self.kv.block_size
        self.kv.keep(slot, node, found)
        need = -(-room // page) * page - found
        if need > self.kv.available():
            self.kv.release(slot, False)
            return -1
        self.kv.make_room(need)
        self.kv.take(slot, max(room, found))
        return found

    def grow(self, slot, room):
        """Take pages for so many tokens; return whether there are any."""
        cdef int64_t page = self.kv.block_size
        need = -(-room // page) * page - -(-self.kv.tokens(slot) // page) * page
        if need > self.kv.available():
            return False
        self.kv.make_room(need)
        self.kv.take(slot, room)
        return True

    def publish(self, slot, row, num_tokens, prompt_tokens, priority):
        self.kv.publish(slot, row, num_tokens, prompt_tokens, priority)

    def release(self, slot):
        self.kv.release(slot, False)

    def make_room(self, tokens):
        self.kv.make_room(tokens)

    # ---- the tree

    def match(self, row, num_tokens):
        cdef int32_t node = 0, found = self.kv.tree.match(row, num_tokens, &node)
        return found, node

    def insert(self, row, num_tokens, priority=0, counted=0):
        cdef int32_t node = 0, found = self.kv.tree.insert(row, num_tokens, priority, counted, 0, &node)
        return found, node

    def lock(self, node, change):
        self.kv.tree.lock(node, 0, change)

    def evict(self):
        return self.kv.tree.evict()

    def nodes(self):
        """Return (depth in tokens, tokens, locks, hits, priority) of each node, sorted."""
        return sorted(self._below(0, 0))

    def _below(self, int32_t node, depth):
        cdef const Node* it
        cdef int32_t child = self.kv.tree.first_child(node)
        found = []
        while child >= 0:
            it = &self.kv.tree._nodes[child]
            found.append((depth, it.end - it.begin, it.locks, it.hits, it.priority))
            found += self._below(child, depth + it.end - it.begin)
            child = self.kv.tree.next_sibling(child)
        return found
