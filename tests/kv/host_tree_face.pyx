# cython: language_level=3
"""The methods of a RadixKV with a HostTree as Python functions. The tests compile this against the package's headers."""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.radix cimport RadixKV
from simulator.kv.radix_host cimport HostTree


cdef class HostTreeFace:
    cdef readonly RadixKV kv
    cdef HostTree tree

    def __init__(self, RadixKV kv, num_slots):
        self.kv, self.tree = kv, kv.tree
        kv.reserve_slots(num_slots)

    def find(self, row, num_tokens):
        """Return tokens on the accelerator and in host memory alone, and the nodes where either ends."""
        cdef int32_t node = 0, found = self.kv.find(row, num_tokens, &node)
        return found, self.tree.host_tokens, node, self.tree.host_node

    def keep(self, slot, node, found):
        self.kv.keep(slot, node, found)

    def load_back(self, slot, node, tokens, row):
        return self.kv.load_back(slot, node, tokens, row)

    def take(self, slot, tokens):
        """Take pages for so many tokens; return whether there are any."""
        cdef int64_t page = self.kv.block_size
        need = -(-tokens // page) * page - -(-self.kv.tokens(slot) // page) * page
        if need > self.kv.available():
            return False
        self.kv.make_room(need)
        if need > self.kv.blank_tokens():
            return False
        self.kv.take(slot, tokens)
        return True

    def publish(self, slot, row, num_tokens, prompt_tokens, priority):
        self.kv.publish(slot, row, num_tokens, prompt_tokens, priority)

    def release(self, slot):
        self.kv.release(slot, False)

    def make_room(self, tokens):
        self.kv.make_room(tokens)

    def counts(self):
        """Return how many copies and loads were asked for and not finished."""
        return self.tree.num_backups, self.tree.num_loadings, self.tree.num_extents

    def finish_backups(self):
        """Finish all copies to host memory; with write_back that is done already."""
        cdef int32_t i
        for i in range(self.tree.num_backups if not self.tree._writes_back else 0):
            self.tree.finish_backup(&self.tree.backups[i])
        self.tree.num_backups = 0

    def finish_loads(self):
        cdef int32_t i
        for i in range(self.tree.num_loadings):
            self.tree.finish_load(&self.tree.loadings[i])
        self.tree.num_loadings = 0

    def finish_extents(self):
        cdef int32_t i
        for i in range(self.tree.num_extents):
            self.tree.unlock_host(self.tree.extents[i].node, self.tree.extents[i].lock)
        self.tree.num_extents = 0

    def insert_host(self, node, row, begin, end):
        """Read tokens behind a node, if they have room; return whether."""
        cdef int64_t lock = self.tree.lock_host(node)
        has_room = self.tree.make_host_room(end - begin)
        if has_room:
            self.tree.host_free -= end - begin
            self.tree.host_free += self.tree.insert_host(node, row, begin, end)
        self.tree.unlock_host(node, lock)
        return has_room
