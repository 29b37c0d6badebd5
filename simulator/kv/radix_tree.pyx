"""A radix tree of texts, with SGLang's rules.

Source: sglang 0.5.23, mem_cache/unified_cache/unified_tree_core.py and evict_policy.py: the nodes that a walk touches,
and when; how a split divides a node's state between its halves; the order in which leaves are evicted.

With `ahead` = 1, for a drafter that reads the next token, too, the key of a token is the token and the one behind it:
a text has one key less than tokens (mem_cache/radix_cache.py, RadixKey.is_bigram).

Time counts the events of the tree. A match gives its whole path one time, parents slightly less than their children:
times are multiples of 2**20, less the number of steps from the end.

A node that is locked, or gets a child, stays in the heap of leaves until it comes to the top, and a leaf that is used
again keeps its place: keys only grow, but for MRU, where each use moves the leaf.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from simulator.core.heap cimport in_order, sift
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.domain.request cimport output_stream, own_stream
from simulator.kv.content cimport Cursor

cdef enum:
    TICK = 1 << 20              # longer than any path
    FIRST_BUCKETS = 64
    STAND_IN = 3                # stream of the token that replaces a long prompt; no other stream has this code
    SPARSE = 4                  # buckets per node, at least: a lookup of absent text seldom meets a node


cdef class RadixTree:
    """An empty tree.

    page_size : tokens of a page.
    content : Content, the texts of the requests.
    policy : Eviction.
    ahead : tokens behind a token that its key covers.
    """

    def __init__(self, int32_t page_size, content, int policy, int32_t ahead=0):
        cdef int32_t i
        self.page_size, self._policy, self._content, self.ahead = page_size, policy, content, ahead
        self._requests, self._demands, self._segments = (
            self._content._requests, self._content._demands, self._content._segments)
        self._first_free = -1
        self.longest_prompt = INT32_MAX
        self._num_buckets = FIRST_BUCKETS
        self._buckets = <int32_t*>calloc(self._num_buckets, sizeof(int32_t))
        if self._buckets == NULL:
            raise MemoryError()
        for i in range(self._num_buckets):
            self._buckets[i] = -1
        self._new(-1, -1, 0, 0)

    def __dealloc__(self):
        free(self._nodes)
        free(self._buckets)
        free(self._leaves.entries)
        free(self._places)
        free(self._path.rows)

    # ---- texts

    cdef Piece _piece_at(self, int32_t row, int64_t place) noexcept nogil:
        cdef int32_t i
        cdef const Segment* segment
        cdef Piece piece
        if self._requests[row].prompt_tokens > self.longest_prompt:
            return self._piece_of_cut(row, place)
        if self._demands[row].num_segments == 0 and place < self._requests[row].prompt_tokens:
            piece.stream, piece.offset = own_stream(row), place
            piece.left = self._requests[row].prompt_tokens - place
            return piece
        if self._demands[row].num_segments == 0:
            place -= self._requests[row].prompt_tokens
        for i in range(self._demands[row].num_segments):
            segment = &self._segments[self._demands[row].segments_begin + i]
            if place < segment.num_tokens:
                piece.stream, piece.offset, piece.left = segment.stream, place, segment.num_tokens - place
                return piece
            place -= segment.num_tokens
        piece.stream, piece.offset, piece.left = output_stream(row), place, INT64_MAX
        return piece

    cdef Piece _piece_of_cut(self, int32_t row, int64_t place) noexcept nogil:
        """The same for a prompt that is too long: one token replaces it."""
        cdef Piece piece
        if place == 0:
            piece.stream, piece.offset, piece.left = STAND_IN, 0, 1
        else:
            piece.stream, piece.offset, piece.left = output_stream(row), place - 1, INT64_MAX
        return piece

    cdef int64_t common(self, int32_t row, int64_t begin, int32_t other, int64_t other_begin,
                        int64_t most) noexcept nogil:
        cdef int64_t found = 0, step
        cdef Piece mine, theirs
        if row == other and begin == other_begin:
            return most
        while found < most:
            mine, theirs = self._piece_at(row, begin + found), self._piece_at(other, other_begin + found)
            if mine.stream != theirs.stream or mine.offset != theirs.offset:
                break
            step = min(mine.left, theirs.left)
            found += min(step, most - found)
        return found

    # ---- children

    cdef uint32_t _code_of(self, int32_t parent, int32_t row, int64_t begin) noexcept nogil:
        cdef Piece piece
        cdef uint64_t code
        if self._demands[row].num_segments == 0 and (
                begin < self._requests[row].prompt_tokens <= self.longest_prompt):
            piece.stream, piece.offset = own_stream(row), begin             # as _piece_at does, without the call
        else:
            piece = self._piece_at(row, begin)
        code = <uint64_t>piece.stream * 0x9E3779B97F4A7C15u + <uint64_t>piece.offset
        code = (code ^ (<uint64_t>parent << 32)) * 0xD1B54A32D192ED03u
        return <uint32_t>(code >> 33)

    cdef int32_t _step(self, int32_t node, int32_t row, int64_t begin, int64_t end, int32_t* tokens) noexcept nogil:
        """Return the child that continues a text, and how many of its tokens do, whole pages; -1: there is none."""
        cdef uint32_t code
        cdef int32_t child
        cdef int64_t found
        if self._nodes[node].first_child < 0:
            return -1
        code = self._code_of(node, row, begin)
        child = self._buckets[code & <uint32_t>(self._num_buckets - 1)]
        while child >= 0:
            if (self._nodes[child].code == code and self._nodes[child].parent == node
                    and (node > 0 or self._demands[self._nodes[child].row].adapter == self._demands[row].adapter)):
                found = self.common_keys(row, begin, self._nodes[child].row, self._nodes[child].begin, min(
                    <int64_t>(self._nodes[child].end - self._nodes[child].begin), end - begin))
                if found >= self.page_size:
                    tokens[0] = <int32_t>(found - found % self.page_size)
                    return child
            child = self._nodes[child].in_bucket
        return -1

    cdef int _climb(self, int32_t node) except -1 nogil:
        """Note the path from the root to a node."""
        self._path.size = 0
        while node > 0:
            add_row(&self._path, node)
            node = self._nodes[node].parent
        return 0

    cdef int32_t _descend(self, int32_t node, int32_t row, int64_t begin, int64_t end, int32_t* tokens) noexcept nogil:
        """Go a step down, as `_step` does, along the path that is known to agree, as far as it goes."""
        cdef int32_t child
        if self._path.size == 0:
            return self._step(node, row, begin, end, tokens)
        self._path.size -= 1
        child = self._path.rows[self._path.size]
        tokens[0] = <int32_t>min(<int64_t>(self._nodes[child].end - self._nodes[child].begin), end - begin)
        return child

    cdef void _link(self, int32_t node) noexcept nogil:
        """Make a node a child of its parent."""
        cdef Node* it = &self._nodes[node]
        cdef int32_t bucket
        it.code = self._code_of(it.parent, it.row, it.begin)
        bucket = <int32_t>(it.code & <uint32_t>(self._num_buckets - 1))
        it.in_bucket, self._buckets[bucket] = self._buckets[bucket], node
        it.next, it.before = self._nodes[it.parent].first_child, -1
        if it.next >= 0:
            self._nodes[it.next].before = node
        self._nodes[it.parent].first_child = node

    cdef void _unlink(self, int32_t node) noexcept nogil:
        cdef Node* it = &self._nodes[node]
        cdef int32_t* link = &self._buckets[it.code & <uint32_t>(self._num_buckets - 1)]
        while link[0] != node:
            link = &self._nodes[link[0]].in_bucket
        link[0] = it.in_bucket
        if it.before >= 0:
            self._nodes[it.before].next = it.next
        else:
            self._nodes[it.parent].first_child = it.next
        if it.next >= 0:
            self._nodes[it.next].before = it.before

    cdef int _rehash(self) except -1 nogil:
        """Double the number of buckets."""
        cdef int32_t node, bucket
        resize(&self._buckets, 2 * <size_t>self._num_buckets * sizeof(int32_t))
        self._num_buckets *= 2
        for bucket in range(self._num_buckets):
            self._buckets[bucket] = -1
        for node in range(1, self._num_nodes):
            if self._nodes[node].row >= 0:
                bucket = <int32_t>(self._nodes[node].code & <uint32_t>(self._num_buckets - 1))
                self._nodes[node].in_bucket = self._buckets[bucket]
                self._buckets[bucket] = node
        return 0

    cdef int32_t _new(self, int32_t parent, int32_t row, int64_t begin, int64_t end) except -1 nogil:
        """Return a new node that is not linked to its parent yet."""
        cdef int32_t node = self._first_free, room
        cdef Node* it
        if node < 0:
            if self._num_nodes == self._room:
                room = 2 * self._room + FIRST_BUCKETS
                resize(&self._nodes, room * sizeof(Node))
                resize(&self._leaves.entries, room * sizeof(Placed))
                resize(&self._places, room * sizeof(int32_t))
                self._room = room
            node = self._num_nodes
            self._nodes[node].row = -1
            self._num_nodes += 1
            if SPARSE * self._num_nodes > self._num_buckets:
                self._rehash()
        else:
            self._first_free = self._nodes[node].parent
        it = &self._nodes[node]
        it.row, it.begin, it.end, it.parent = row, <int32_t>begin, <int32_t>end, parent
        it.first_child = it.next = it.before = it.in_bucket = self._places[node] = -1
        it.locks = it.hits = 0
        it.used = it.made = it.priority = 0
        return node

    # ---- walks

    cdef int32_t match(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil:
        cdef int32_t at = 0, child = -1, tokens = 0
        cdef int64_t done = 0
        num_tokens = max(num_tokens - self.ahead, <int64_t>0)
        num_tokens -= num_tokens % self.page_size
        node[0] = 0
        if num_tokens == 0:
            return 0
        while done < num_tokens:
            child = self._step(at, row, done, num_tokens, &tokens)
            if child < 0:
                break
            done += tokens
            if tokens < self._nodes[child].end - self._nodes[child].begin:
                at = self._split(child, tokens)
                break
            at = child
        node[0] = at
        self._touch_path(at)
        return <int32_t>done

    cdef void _touch_path(self, int32_t node) noexcept nogil:
        """Mark all nodes up to the root as used."""
        cdef int64_t now
        self._now += TICK
        now = self._now
        while node >= 0:
            self._nodes[node].used = now
            self._settle(node)
            now -= 1
            node = self._nodes[node].parent

    cdef int32_t _split(self, int32_t node, int32_t tokens) except -1 nogil:
        """Cut a node behind its first `tokens` tokens; return the new node above it."""
        cdef int32_t upper = self._new(
            self._nodes[node].parent, self._nodes[node].row, self._nodes[node].begin, self._nodes[node].begin + tokens)
        cdef Node* it = &self._nodes[node]
        cdef Node* new = &self._nodes[upper]
        self._unlink(node)
        self._now += TICK
        new.priority, new.made, new.used, new.hits, new.locks = it.priority, it.made, self._now, it.hits, it.locks
        it.begin += tokens
        it.parent = upper
        self._link(upper)
        self._link(node)
        self._now += TICK
        it.used = self._now
        self._settle(upper)
        self._settle(node)
        return upper

    cdef int32_t insert(self, int32_t row, int64_t num_tokens, int64_t priority, int64_t counted, int32_t known,
                        int32_t* node) except -1 nogil:
        cdef int32_t at = 0, child, tokens = 0
        cdef int64_t done = 0
        cdef Node* it
        self._climb(known)
        self._now += TICK
        self._nodes[0].used = self._now
        while done < num_tokens:
            child = self._descend(at, row, done, num_tokens, &tokens)
            if child < 0:
                break
            self._now += TICK
            self._nodes[child].used = self._now
            if tokens < self._nodes[child].end - self._nodes[child].begin:
                child = self._split(child, tokens)
            it = &self._nodes[child]
            it.priority = max(it.priority, priority)
            done += tokens
            it.hits += done > counted
            self._settle(child)
            at = child
        node[0] = at
        if done < num_tokens:
            node[0] = self._add_leaf(at, row, done, num_tokens, priority, num_tokens > counted)
        return <int32_t>done

    cdef int32_t _add_leaf(self, int32_t parent, int32_t row, int64_t begin, int64_t end, int64_t priority,
                           bint is_hit) except -1 nogil:
        cdef int32_t leaf = self._new(parent, row, begin, end)
        cdef Node* it = &self._nodes[leaf]
        self._now += TICK
        it.used = self._now
        self._now += TICK
        it.made, it.priority, it.hits = self._now, priority, is_hit
        self._link(leaf)
        self.evictable += end - begin
        self._settle(leaf)
        self._settle(parent)
        if self.log is not None:
            self._note(leaf, True)
        return leaf

    cdef void _note(self, int32_t node, bint is_there) noexcept nogil:
        """Log the pages of a node for the follower."""
        cdef const Node* it = &self._nodes[node]
        cdef int64_t place = 0
        cdef uint64_t hash
        cdef Cursor cursor
        memset(&cursor, 0, sizeof(Cursor))
        if self._requests[it.row].prompt_tokens > self.longest_prompt:
            return                          # no prompt begins with it
        while place < it.end:
            hash = self._content.next_hash(it.row, self.page_size, self.ahead, &cursor)
            place += self.page_size
            if place > it.begin:
                self.log.note(hash, is_there)

    # ---- locks and eviction

    cdef void lock(self, int32_t node, int32_t above, int32_t change) noexcept nogil:
        cdef Node* it
        cdef int64_t tokens
        while node != above:
            it = &self._nodes[node]
            tokens = it.end - it.begin
            if it.locks == 0:
                self.evictable -= tokens
                self.protected += tokens
            it.locks += change
            if it.locks == 0:
                self.evictable += tokens
                self.protected -= tokens
                self._settle(node)
            node = it.parent

    cdef void move_lock(self, int32_t before, int32_t after) noexcept nogil:
        cdef int32_t node = after
        while node > 0 and node != before:
            node = self._nodes[node].parent
        if node == before:
            self.lock(after, before, 1)         # the path grows
            return
        self.lock(before, 0, -1)
        self.lock(after, 0, 1)

    cdef int32_t evict(self) except -1 nogil:
        cdef int32_t node = self._first_leaf(), parent, tokens
        if node < 0:
            return 0
        parent, tokens = self._nodes[node].parent, self._nodes[node].end - self._nodes[node].begin
        if self.log is not None:
            self._note(node, False)
        self._drop(node)
        self.evictable -= tokens
        self.evicted += tokens
        self._settle(parent)
        return tokens

    cdef void _drop(self, int32_t node) noexcept nogil:
        """Make a leaf a free node."""
        if self._places[node] >= 0:
            self._take_out(&self._leaves, node)
        self._unlink(node)
        self._nodes[node].row = -1
        self._nodes[node].parent, self._first_free = self._first_free, node

    cdef int64_t forget_host(self) except -1 nogil:
        return 0

    cdef int64_t begin_load(self, int32_t node) except -1 nogil:
        return 0

    cdef int end_load(self, int32_t node, int64_t lock, bint has_room, int32_t row) except -1 nogil:
        return 0

    cdef int32_t _first_leaf(self) noexcept nogil:
        """Return the evictable leaf that goes first; -1: there is none."""
        cdef const Placed* top
        cdef Placed now
        while self._leaves.size > 0:
            top = self._leaves.entries
            if self._nodes[top.index].locks > 0 or self._nodes[top.index].first_child >= 0:
                self._take_out(&self._leaves, top.index)
                continue
            now = self._entry(top.index)
            if now.key == top.key and now.tie == top.tie:
                return now.index
            self._put_in(&self._leaves, now.index)
        return -1

    cdef Placed _entry(self, int32_t node) noexcept nogil:
        """Return a node with the keys of the policy."""
        cdef const Node* it = &self._nodes[node]
        cdef Placed entry = Placed(it.used, 0, 0, node)
        if self._policy == MRU:
            entry.key = -it.used
        elif self._policy != LRU:
            entry.tie = it.used
            entry.key = it.hits
            if self._policy == FIFO:
                entry.key = it.made
            elif self._policy == FILO:
                entry.key = -it.made
            elif self._policy == BY_PRIORITY:
                entry.key = it.priority
            elif self._policy == SLRU:
                entry.key = it.hits >= 2
        return entry

    cdef void _settle(self, int32_t node) noexcept nogil:
        """Put a node among the leaves, if it is an evictable one."""
        cdef const Node* it = &self._nodes[node]
        if node > 0 and it.locks == 0 and it.first_child < 0 and (self._places[node] < 0 or self._policy == MRU):
            self._put_in(&self._leaves, node)

    cdef void _put_in(self, Leaves* leaves, int32_t node) noexcept nogil:
        """Add a node, or bring it to the place that it has now."""
        cdef int32_t place = self._places[node]
        if place < 0:
            place = leaves.size
            leaves.size += 1
        sift(leaves.entries, self._places, leaves.size, place, self._entry(node))

    cdef void _take_out(self, Leaves* leaves, int32_t node) noexcept nogil:
        cdef int32_t place = self._places[node]
        self._places[node] = -1
        leaves.size -= 1
        if place < leaves.size:
            sift(leaves.entries, self._places, leaves.size, place, leaves.entries[leaves.size])

    # ---- the debug face

    def check(self):
        """Raise RuntimeError unless nodes, counts and heap agree."""
        cdef int32_t node, listed = 0, place
        cdef int64_t evictable = 0, protected = 0, tokens
        cdef Placed now
        for node in range(1, self._num_nodes):
            if self._nodes[node].row < 0:
                continue
            tokens = self._nodes[node].end - self._nodes[node].begin
            evictable, protected = (evictable + tokens * (self._nodes[node].locks == 0),
                                    protected + tokens * (self._nodes[node].locks > 0))
            place, now = self._places[node], self._entry(node)
            is_free = self._nodes[node].locks == 0 and self._nodes[node].first_child < 0
            listed += place >= 0
            if tokens <= 0 or tokens % self.page_size or (place < 0 and is_free) or (
                    place >= 0 and self._leaves.entries[place].index != node) or (
                    is_free and now.key < self._leaves.entries[place].key):
                raise RuntimeError(f"node {node} of the radix tree: {tokens} tokens at place {place} of the leaves")
        if not in_order(self._leaves.entries, self._leaves.size):
            raise RuntimeError("a leaf of the radix tree goes before its parent in the heap")
        if (evictable, protected, listed) != (self.evictable, self.protected, self._leaves.size):
            raise RuntimeError(f"{evictable} tokens free to go, {protected} locked and {listed} in the heap of leaves; "
                               f"{self.evictable}, {self.protected} and {self._leaves.size} counted")
