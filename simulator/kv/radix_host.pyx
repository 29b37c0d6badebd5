"""A radix tree of texts with copies of its nodes in host memory, as SGLang's HiCache keeps them.

Source: sglang 0.5.23, mem_cache/unified_radix_cache.py (init_hicache, _evict_components, load_back, init_load_back,
_execute_and_commit_kv_backup, writing_check, loading_check), mem_cache/unified_cache/unified_tree_core.py and
components/full.py. Its rules:

- A lookup finds nodes on the accelerator, then nodes in host memory alone; it marks both as used.
- A node is copied to host memory when it is inserted for the first time (write_through) or for the second
  (write_through_selective), after the nodes above it that are not there. It is locked until the copy has ended.
  If host memory has no room and nothing to evict, the node is not copied, nor the nodes below it.
- With write_back a leaf is copied when it is evicted, and the scheduler waits for that. Hits are not counted then.
  If host memory has no room, it first gives up copies of nodes that are also on the accelerator; then the leaf is
  dropped with all nodes below it.
- The accelerator evicts leaves of its part of the tree; their copies stay in host memory. Host memory evicts leaves
  of the whole tree, in the same order of the policy. A locked node is not evicted from either.
- Text that is computed again while it is in host memory alone is on the accelerator again, in pages of its own.
"""
from libc.stdlib cimport free
from libc.string cimport memset

from simulator.core.heap cimport Placed
from simulator.core.index_list cimport new_list
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.kv.radix_tree cimport Node

import msgspec

cdef enum:
    TICK = 1 << 20              # see radix_tree.pyx


class HostSettings(msgspec.Struct, frozen=True):
    """Host memory of a tree.

    tokens : that fit, whole pages.
    write_policy : write_through, write_through_selective or write_back.
    has_store : there is a store below host memory; not with write_back.
    """

    tokens: int
    write_policy: str = "write_through"
    has_store: bool = False


cdef class HostTree(RadixTree):
    """An empty tree with a host; see radix_host.pxd.

    page_size, content, policy : see RadixTree.
    settings : HostSettings.
    """

    def __init__(self, int32_t page_size, content, int policy, settings):
        self._links, self._duplicates = IndexLinks(), new_list()
        RadixTree.__init__(self, page_size, content, policy)
        self.capacity = self.host_free = settings.tokens
        self._writes_back = settings.write_policy == "write_back"
        self._threshold = 1 + (settings.write_policy == "write_through_selective")
        self.keeps_extents = settings.has_store
        self._sides[0].on_device = True

    def __dealloc__(self):
        free(self._sides)
        free(self._host_leaves.entries)
        free(self._chain.rows)
        free(self.backups)
        free(self.loadings)
        free(self.extents)

    cdef int32_t _new(self, int32_t parent, int32_t row, int64_t begin, int64_t end) except -1 nogil:
        cdef int32_t node = RadixTree._new(self, parent, row, begin, end)
        if self._side_room < self._room:
            self._grow_sides()
        memset(&self._sides[node], 0, sizeof(Side))
        return node

    cdef int _grow_sides(self) except -1 nogil:
        resize(&self._sides, self._room * sizeof(Side))
        resize(&self._host_leaves.entries, self._room * sizeof(Placed))
        self._links.grow(self._room)
        self._side_room = self._room
        return 0

    # ---- walks

    cdef int32_t match(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil:
        cdef int32_t at = 0, child, tokens = 0
        cdef int64_t done = 0, found = 0
        num_tokens -= num_tokens % self.page_size
        node[0] = self.host_node = 0
        self.host_tokens = 0
        if num_tokens == 0:
            return 0
        while done < num_tokens:
            child = self._step(at, row, done, num_tokens, &tokens)
            if child < 0:
                break
            done += tokens
            at = child if tokens == self._tokens(child) else self._split(child, tokens)
            if self._sides[at].on_device:
                node[0], found = at, done
            if at != child:
                break
        self._touch_path(at)
        self.host_node, self.host_tokens = at, done - found
        return <int32_t>found

    cdef int32_t insert(self, int32_t row, int64_t num_tokens, int64_t priority, int64_t counted, int32_t known,
                        int32_t* node) except -1 nogil:
        cdef int32_t at = 0, child, tokens = 0
        cdef int64_t done = 0
        self._climb(known)
        self._now += TICK
        self._nodes[0].used = self._now
        while done < num_tokens:
            child = self._descend(at, row, done, num_tokens, &tokens)
            if child < 0:
                break
            self._now += TICK
            self._nodes[child].used = self._now
            if tokens < self._tokens(child):
                self._settle(child)
                child = self._split(child, tokens)
            self._nodes[child].priority = max(self._nodes[child].priority, priority)
            done += tokens
            if not self._sides[child].on_device:
                self._come(child)
                self._track(child)
                self.revived += tokens
            self._settle(child)
            at = child
            if done > counted:
                self._hit(child)
        node[0] = at
        if done < num_tokens:
            node[0] = self._add_leaf(at, row, done, num_tokens, priority, False)
            if num_tokens > counted:
                self._hit(node[0])
        return <int32_t>done

    cdef int32_t _add_leaf(self, int32_t parent, int32_t row, int64_t begin, int64_t end, int64_t priority,
                           bint is_hit) except -1 nogil:
        cdef int32_t leaf = RadixTree._add_leaf(self, parent, row, begin, end, priority, is_hit)
        self._sides[leaf].on_device = True
        self._sides[parent].device_children += 1
        self._settle(leaf)
        self._settle(parent)
        return leaf

    cdef int32_t _split(self, int32_t node, int32_t tokens) except -1 nogil:
        cdef int32_t upper = RadixTree._split(self, node, tokens)
        self._sides[upper] = self._sides[node]
        self._sides[upper].is_host_leaf = False
        self._sides[upper].device_children = self._sides[node].on_device
        self._sides[node].segment = 0
        self._settle(upper)
        self._settle(node)
        self._track(upper)
        return upper

    cdef void _come(self, int32_t node) noexcept nogil:
        """Let a node have pages on the accelerator."""
        self._sides[node].on_device = True
        self._sides[self._nodes[node].parent].device_children += 1
        if self._nodes[node].locks > 0:
            self.protected += self._tokens(node)
        else:
            self.evictable += self._tokens(node)
        if self.log is not None:
            self._note(node, True)
        self._settle(node)
        self._settle(self._nodes[node].parent)

    cdef void _go(self, int32_t node) noexcept nogil:
        """Take the pages on the accelerator from an unlocked leaf."""
        self._sides[node].on_device = False
        self._sides[self._nodes[node].parent].device_children -= 1
        self.evictable -= self._tokens(node)
        self.evicted += self._tokens(node)
        if self.log is not None:
            self._note(node, False)

    # ---- locks

    cdef void lock(self, int32_t node, int32_t above, int32_t change) noexcept nogil:
        cdef int64_t tokens
        cdef Node* it
        while node != above:
            it = &self._nodes[node]
            tokens = self._tokens(node) if self._sides[node].on_device else 0
            if it.locks == 0:
                self.evictable -= tokens
                self.protected += tokens
            it.locks += change
            if it.locks == 0:
                self.evictable += tokens
                self.protected -= tokens
            self._settle(node)
            node = it.parent

    cdef int64_t lock_host(self, int32_t node) noexcept nogil:
        cdef Side* it = &self._sides[node]
        if node == 0 or not it.on_host:
            return 0
        if it.segment == 0:
            self._segments += 1
            it.segment = self._segments
        it.host_locks += 1
        self._settle(node)
        return it.segment

    cdef void unlock_host(self, int32_t node, int64_t lock) noexcept nogil:
        while lock != 0:                        # a node that was split has its locks, up to where it began
            self._sides[node].host_locks -= 1
            self._settle(node)
            if self._sides[node].segment == lock:
                break
            node = self._nodes[node].parent

    cdef void _settle(self, int32_t node) noexcept nogil:
        cdef Node* it = &self._nodes[node]
        cdef Side* side = &self._sides[node]
        cdef bint is_leaf, is_host_leaf
        if node == 0:
            return
        is_leaf = side.on_device and it.locks == 0 and side.device_children == 0
        is_host_leaf = (side.on_host and not side.on_device and it.locks == 0 and side.host_locks == 0
                        and it.first_child < 0)
        if self._places[node] >= 0 and not (is_host_leaf if side.is_host_leaf else is_leaf):
            self._take_out(&self._host_leaves if side.is_host_leaf else &self._leaves, node)
        side.is_host_leaf = is_host_leaf
        if is_leaf:
            self._put_in(&self._leaves, node)
        elif is_host_leaf:
            self._put_in(&self._host_leaves, node)

    # ---- copies to host memory

    cdef int _hit(self, int32_t node) except -1 nogil:
        """Count a computation of a node; copy the node if there were enough."""
        if self._writes_back:
            return 0
        self._nodes[node].hits += 1
        self._settle(node)
        if not self._sides[node].on_host and self._nodes[node].hits >= self._threshold:
            self._back_up(node)
        return 0

    cdef int _back_up(self, int32_t node) except -1 nogil:
        """Copy a node, after the nodes above it that have no copy."""
        self._chain.size = 0
        while node > 0 and not self._sides[node].on_host:
            add_row(&self._chain, node)
            node = self._nodes[node].parent
        while self._chain.size > 0:
            self._chain.size -= 1
            node = self._chain.rows[self._chain.size]
            if not self._write(node):
                break
            self._sides[node].writing = <int32_t>self.num_copies
            self.lock(node, 0, 1)
        return 0

    cdef bint _write(self, int32_t node) except -1 nogil:
        """Let a node have pages in host memory, if there is room, and request the copy."""
        cdef Backup* it
        cdef int32_t tokens = self._tokens(node)
        if not self.make_host_room(tokens):
            self.num_refused += 1
            return False
        if self.num_backups == self._backup_room:
            resize(&self.backups, (2 * <size_t>self._backup_room + 8) * sizeof(Backup))
            self._backup_room = 2 * self._backup_room + 8
        self.num_copies += 1
        self.host_free -= tokens
        self._sides[node].on_host = True
        it = &self.backups[self.num_backups]
        it.node, it.number, it.row, it.tokens = node, <int32_t>self.num_copies, self._nodes[node].row, tokens
        self.num_backups += 1
        return True

    cdef int finish_backup(self, const Backup* backup) except -1 nogil:
        cdef int32_t node = backup.node
        self._chain.size = 0
        while node > 0 and self._sides[node].writing == backup.number:
            self._sides[node].writing = 0
            self._track(node)
            add_row(&self._chain, node)
            node = self._nodes[node].parent
        self.lock(backup.node, 0, -1)
        while self._chain.size > 0 and self.keeps_extents:
            self._chain.size -= 1
            self._add_extent(self._chain.rows[self._chain.size])
        return 0

    cdef int cancel_backup(self, const Backup* backup) except -1 nogil:
        cdef int32_t node = backup.node
        while node > 0 and self._sides[node].writing == backup.number:
            self._sides[node].writing = 0
            node = self._nodes[node].parent
        self.lock(backup.node, 0, -1)
        return 0

    cdef int _add_extent(self, int32_t node) except -1 nogil:
        cdef Extent* it
        if self.num_extents == self._extent_room:
            resize(&self.extents, (2 * <size_t>self._extent_room + 8) * sizeof(Extent))
            self._extent_room = 2 * self._extent_room + 8
        it = &self.extents[self.num_extents]
        it.node, it.row, it.begin, it.end = (
            node, self._nodes[node].row, self._nodes[node].begin, self._nodes[node].end)
        it.lock = self.lock_host(node)
        self.num_extents += 1
        return 0

    # ---- room in host memory

    cdef bint make_host_room(self, int64_t tokens) except -1 nogil:
        cdef int64_t lacking = tokens - self.host_free
        return lacking <= 0 or self.evict_host(lacking) >= lacking

    cdef int64_t evict_host(self, int64_t tokens) except -1 nogil:
        cdef int64_t gained = self._give_up_duplicates(tokens) if self._writes_back else 0
        while gained < tokens and self._host_leaves.size > 0:
            gained += self._drop_host(self._host_leaves.entries[0].index)
        self.host_evicted += gained
        return gained

    cdef int64_t _drop_host(self, int32_t node) noexcept nogil:
        """Drop a leaf that is in host memory alone."""
        cdef int32_t parent = self._nodes[node].parent, tokens = self._tokens(node)
        self.host_free += tokens
        self._drop(node)
        self._settle(parent)
        return tokens

    cdef int64_t _give_up_duplicates(self, int64_t tokens) except -1 nogil:
        """Give up copies of nodes that are also on the accelerator, copies of its evictable leaves last."""
        cdef int64_t gained = 0
        cdef int32_t node, following, i
        for i in range(2):
            node = self._duplicates.head
            while node >= 0 and gained < tokens:
                following = self._links.next(node)
                if not (self._sides[node].on_device and self._sides[node].on_host):
                    self._links.remove(&self._duplicates, node)
                elif (i == 1 or self._places[node] < 0) and self._is_duplicate(node) and (
                        self._sides[node].host_locks == 0):
                    self._sides[node].on_host = False
                    self.host_free += self._tokens(node)
                    gained += self._tokens(node)
                    self._links.remove(&self._duplicates, node)
                node = following
        return gained

    cdef bint _is_duplicate(self, int32_t node) noexcept nogil:
        cdef const Side* it = &self._sides[node]
        return it.on_device and it.on_host and it.writing == 0 and it.loading == 0

    cdef void _track(self, int32_t node) noexcept nogil:
        """List a node that has become a duplicate; a former duplicate may stay in the list until that is read."""
        if not self._writes_back or node == 0:
            return
        if not self._is_duplicate(node):
            if self._links.is_linked(node):
                self._links.remove(&self._duplicates, node)
        elif not self._links.is_linked(node):
            self._links.push_back(&self._duplicates, node)

    # ---- room on the accelerator

    cdef int32_t evict(self) except -1 nogil:
        cdef int32_t node = self._leaves.entries[0].index
        if self._leaves.size == 0:
            return 0
        if self._sides[node].on_host:
            return self._demote(node)
        if not self._writes_back:
            return self._delete(node)
        if not self._write(node):
            return self._drop_subtree(node)
        self._track(node)
        return self._demote(node)

    cdef int32_t _demote(self, int32_t node) noexcept nogil:
        """Let a leaf stay in host memory alone."""
        self._go(node)
        self._settle(node)
        self._settle(self._nodes[node].parent)
        return self._tokens(node)

    cdef int32_t _delete(self, int32_t node) noexcept nogil:
        """Drop a leaf that has no copy in host memory."""
        cdef int32_t parent = self._nodes[node].parent, tokens = self._tokens(node)
        self._go(node)
        self._drop(node)
        self._settle(parent)
        return tokens

    cdef int32_t _drop_subtree(self, int32_t node) except -1 nogil:
        """Drop a leaf for which host memory has no room, with the nodes below it, which are unused copies there."""
        cdef int32_t i = 0, child
        self._chain.size = 0
        add_row(&self._chain, node)
        while i < self._chain.size:
            child = self._nodes[self._chain.rows[i]].first_child
            while child >= 0:
                add_row(&self._chain, child)
                child = self._nodes[child].next
            i += 1
        for i in range(self._chain.size - 1, 0, -1):
            self._drop_host(self._chain.rows[i])
        return self._delete(node)

    cdef void _drop(self, int32_t node) noexcept nogil:
        if self._places[node] >= 0:
            self._take_out(&self._host_leaves if self._sides[node].is_host_leaf else &self._leaves, node)
        if self._links.is_linked(node):
            self._links.remove(&self._duplicates, node)
        RadixTree._drop(self, node)

    cdef int64_t forget_host(self) except -1 nogil:
        cdef int64_t gained = 0
        cdef int32_t node
        while self._host_leaves.size > 0:
            self._drop_host(self._host_leaves.entries[0].index)
        while self._leaves.size > 0:
            node = self._leaves.entries[0].index
            self.host_free += self._tokens(node) if self._sides[node].on_host else 0
            gained += self._delete(node)
        for node in range(1, self._num_nodes):          # batches that are under way hold these nodes
            if self._nodes[node].row >= 0 and self._sides[node].on_host:
                self._sides[node].on_host = False
                self.host_free += self._tokens(node)
        return gained

    # ---- text read from below

    cdef int64_t insert_host(self, int32_t node, int32_t row, int64_t begin, int64_t end) except -1 nogil:
        cdef int32_t child, tokens = 0, leaf
        cdef int64_t place = begin, spare = 0
        self._use(node)
        while place < end:
            child = self._step(node, row, place, end, &tokens)
            if child < 0:
                break
            self._use(child)
            node = child if tokens == self._tokens(child) else self._split(child, tokens)
            place += tokens
            if self._sides[node].on_host:
                spare += tokens
            else:
                self._sides[node].on_host = True
                self._settle(node)
        if place < end and node > 0 and not self._sides[node].on_host:
            return end - begin
        if place < end:
            leaf = self._new(node, row, place, end)
            self._now += TICK
            self._nodes[leaf].used = self._nodes[leaf].made = self._now
            self._nodes[leaf].priority = self._nodes[node].priority
            self._sides[leaf].on_host = True
            self._link(leaf)
            self._settle(leaf)
            self._settle(node)
        return spare

    cdef void _use(self, int32_t node) noexcept nogil:
        self._now += TICK
        self._nodes[node].used = self._now
        self._settle(node)

    # ---- loads

    cdef int64_t begin_load(self, int32_t node) except -1 nogil:
        cdef int64_t lock = self.lock_host(node)
        self.lock(node, 0, 1)
        return lock

    cdef int end_load(self, int32_t node, int64_t lock, bint has_room, int32_t row) except -1 nogil:
        cdef Loading* it
        self.lock(node, 0, -1)
        if not has_room:
            self.unlock_host(node, lock)
            return 0
        if self.num_loadings == self._loading_room:
            resize(&self.loadings, (2 * <size_t>self._loading_room + 8) * sizeof(Loading))
            self._loading_room = 2 * self._loading_room + 8
        self.num_loads += 1
        it = &self.loadings[self.num_loadings]
        it.node, it.number, it.row, it.tokens, it.lock = node, <int32_t>self.num_loads, row, 0, lock
        self.num_loadings += 1
        self._chain.size = 0
        while node > 0 and not self._sides[node].on_device:
            add_row(&self._chain, node)
            node = self._nodes[node].parent
        while self._chain.size > 0:
            self._chain.size -= 1
            node = self._chain.rows[self._chain.size]
            self._sides[node].loading = it.number if self._writes_back else 0
            it.tokens += self._tokens(node)
            self._come(node)
        self.lock(it.node, 0, 1)
        return 0

    cdef int finish_load(self, const Loading* loading) except -1 nogil:
        cdef int32_t node = loading.node
        self.lock(node, 0, -1)
        self.unlock_host(node, loading.lock)
        while node > 0 and self._writes_back:
            if self._sides[node].loading == loading.number:
                self._sides[node].loading = 0
                self._track(node)
            node = self._nodes[node].parent
        return 0

    # ---- the debug face

    def check(self):
        """Raise RuntimeError unless nodes, counts and heaps agree."""
        cdef int32_t node, parent
        cdef const Side* side
        cdef const Node* it
        counts = {"evictable": 0, "protected": 0, "on host": 0, "leaves": 0, "host leaves": 0}
        children = [0] * self._num_nodes
        for node in range(1, self._num_nodes):
            it, side = &self._nodes[node], &self._sides[node]
            if it.row < 0:
                continue
            tokens, parent = it.end - it.begin, it.parent
            if tokens <= 0 or tokens % self.page_size or not (side.on_device or side.on_host) or (
                    side.on_device and not self._sides[parent].on_device):
                raise RuntimeError(f"node {node} of the radix tree: {tokens} tokens, on the accelerator "
                                   f"{side.on_device}, in host memory {side.on_host}")
            if not self._writes_back and parent > 0 and side.on_host and not self._sides[parent].on_host:
                raise RuntimeError(f"node {node} is in host memory, and {parent} above it is not")
            children[parent] += side.on_device
            counts["evictable" if it.locks == 0 else "protected"] += tokens * side.on_device
            counts["on host"] += tokens * side.on_host
            counts["host leaves" if side.is_host_leaf else "leaves"] += self._places[node] >= 0
        found = {"evictable": self.evictable, "protected": self.protected, "leaves": self._leaves.size,
                 "host leaves": self._host_leaves.size, "on host": self.capacity - self.host_free - self.host_lent}
        if counts != found or any(self._sides[i].device_children != count for i, count in enumerate(children)
                                  if i == 0 or self._nodes[i].row >= 0):
            raise RuntimeError(f"the radix tree has {counts}, and {found} are counted")

    def sides(self):
        """Return (depth, tokens, on the accelerator, in host memory, locks, locks there, hits) of nodes, sorted."""
        cdef int32_t node, above
        found = []
        for node in range(1, self._num_nodes):
            if self._nodes[node].row >= 0:
                depth, above = 0, self._nodes[node].parent
                while above > 0:
                    depth, above = depth + self._tokens(above), self._nodes[above].parent
                it = self._sides[node]
                found.append((depth, self._tokens(node), bool(it.on_device), bool(it.on_host),
                              self._nodes[node].locks, it.host_locks, self._nodes[node].hits))
        return sorted(found)
