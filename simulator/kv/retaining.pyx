"""KV blocks that are held for programs while their tools run.

Sources: Li et al., Continuum, arXiv 2511.02230 (a time to live for the KV of a program while its tool runs);
Abhyankar et al., InferCept, arXiv 2402.01869 (preserve the KV of a request that waits for a tool, by the expected
time); Pan et al., KVFlow, arXiv 2507.07400 (evict first the KV of the agents with the farthest next step). Holds
change the order of reuse alone: a request is admitted whenever free blocks suffice, held or not.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.domain.request cimport COMPLETED
from simulator.kv.prefix_cache cimport Block

cdef enum:
    MARKED = -1                 # references of a free block that the request being admitted will own

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15           # odd: keys of sessions differ in their low bits
POLICIES = {"ttl": TTL, "pin": PIN, "predicted": PREDICTED}


cdef inline uint64_t key_of(int32_t session) noexcept nogil:
    return <uint64_t>session * SPREAD


@cython.final
cdef class RetainingKV(SparseKV):
    """KV blocks of one replica with prefix caching, and blocks held for programs.

    Parameters as for SparseKV; call `retain_by` before anything else.
    """

    def retain_by(self, retention):
        """Hold blocks by a `domain.kv_retention.Retention`."""
        self._policy = POLICIES[retention.policy]
        self._ttl_ns, self._most_held = retention.ttl_ns, int(retention.max_share * self.num_blocks)
        self._requests, self._demands = retention.requests, retention.demands
        self._tool_ns, self._from_arrival = retention.tool_ns, retention.from_arrival
        self._order, self._hold_of, self._over = IndexHeap(), HashMap(), -1
        self._lists_each = True
        self._cached.prepare(1)
        self._ring = self._cached.hold()
        self._cached.blocks[self._ring].prev = self._cached.blocks[self._ring].next = self._ring

    def __dealloc__(self):
        cdef int32_t hold
        for hold in range(self._num_holds):
            free(self._holds[hold].path)
        free(self._holds)
        free(self._holders)

    # ---- allocation

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int32_t taken = self._taken(slot, hits, slots, full_tokens, watermark)
        if taken < 0:
            return 0
        if self._owned[slot] == 0:
            self._admit(row)
        if hits > 0:
            self._mark_hits(0, MARKED)
        self._make_room(taken)
        if hits > 0:
            self._mark_hits(MARKED, 0)
        return SparseKV.allocate(self, slot, row, hits, slots, full_tokens, watermark, known_tokens)

    cdef void _admit(self, int32_t row) noexcept nogil:
        """End holds that have expired, and the hold of the program with this turn."""
        cdef int32_t hold = -1
        while self._policy == TTL and self._order.size > 0 and self._order.next_ns() <= self.now_ns:
            hold = self._order.top()
            self.num_expired += 1
            self.held_block_s += <double>self._holds[hold].count * self._ttl_ns / 1e9
            self._end_whole(hold)
        if self._demands[row].session >= 0:
            hold = self._hold_of.get(key_of(self._demands[row].session))
            if hold >= 0:
                self.num_found += 1
                self.blocks_found += self._holds[hold].count
                self.held_block_s += <double>self._holds[hold].count * max(
                    self.now_ns - self._holds[hold].begin_ns, <int64_t>0) / 1e9
                self._end_whole(hold)

    cdef void _mark_hits(self, int32_t before, int32_t after) noexcept nogil:
        """Set references of the hits that are free: MARKED ones are not given back, and not set aside any more."""
        cdef Block* blocks = self._cached.blocks
        cdef int32_t i
        for i in range(self._public_hits):
            if blocks[self._hits[i]].references == before:
                blocks[self._hits[i]].references = after
                if after == MARKED and self._held_times(self._hits[i]) > 0:
                    self._set_aside -= 1

    cdef void _make_room(self, int64_t taken) noexcept nogil:
        """Give back held blocks as far as other free blocks do not suffice to take so many."""
        cdef int64_t lacking = self._set_aside + taken - self.free_blocks
        if lacking > 0:
            self.blocks_given_back += self._give_back(lacking)

    cdef int64_t _give_back(self, int64_t count) noexcept nogil:
        """Let `count` blocks be reused like other free blocks, in the order of the policy; return their number."""
        cdef int64_t given = 0
        cdef int32_t hold
        cdef Hold* it
        while given < count and self._order.size > 0:
            hold = self._order.top()
            it = &self._holds[hold]
            it.count -= 1
            given += self._drop(it.path[it.count])
            if it.count == 0:
                self._end(hold)
        return given

    cdef bint _drop(self, int32_t element) noexcept nogil:
        """Take a block off a path; return whether it can be reused now."""
        self._holders[element] -= 1
        if self._holders[element] > 0 or self._cached.blocks[element].references != 0:
            return False
        self._cached.take_block(element)
        self._cached.append_block(element)
        self._set_aside -= 1
        return True

    # ---- holds

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef int32_t row = self._holdings[slot].row, i, count
        cdef const int32_t* path = self._holdings[slot].shared
        count = min(self._holdings[slot].num_hashed, self._holdings[slot].num_public)
        SparseKV.release(self, slot, returns)
        for i in range(count if self._order.size > 0 else 0):       # blocks that other programs hold
            if self._held_times(path[i]) > 0 and self._cached.blocks[path[i]].references == 0:
                self._put_aside(path[i])
        if returns or count == 0 or self._tool_ns[row] < 0 or self._requests[row].status != COMPLETED:
            return 0
        return self._hold(row, path, count)

    cdef int _hold(self, int32_t row, const int32_t* path, int32_t count) except -1 nogil:
        """Hold the blocks of a turn; the hold of an earlier turn of its program ends."""
        cdef int32_t session = self._demands[row].session, hold = self._hold_of.get(key_of(session)), i
        cdef Hold* it
        if hold >= 0:
            self._end_whole(hold)
        hold = self._new_hold()
        it = &self._holds[hold]
        if count > it.room:
            resize(&it.path, count * sizeof(int32_t))
            it.room = count
        memcpy(it.path, path, count * sizeof(int32_t))
        it.count, it.session, it.begin_ns = count, session, self._requests[row].completed_ns
        for i in range(count):
            self._grow_holders(path[i])
            if self._holders[path[i]] == 0 and self._cached.blocks[path[i]].references == 0:
                self._put_aside(path[i])
            self._holders[path[i]] += 1
        self._hold_of.put(key_of(session), hold)
        self._order.push(hold, self._key_of(row), session, 0)
        self.num_holds += 1
        if self._set_aside > self._most_held:
            self.blocks_over_share += self._give_back(self._set_aside - self._most_held)
        self.most_set_aside = max(self.most_set_aside, self._set_aside)
        return 0

    cdef int64_t _key_of(self, int32_t row) noexcept nogil:
        """Return the place of the hold of a turn among all holds: the lowest is given back first."""
        cdef int64_t end_ns = self._requests[row].completed_ns
        if self._policy == TTL:
            return end_ns + self._ttl_ns
        if self._policy == PIN:
            return end_ns
        return -(self._tool_ns[row] + (self._requests[row].arrival_ns if self._from_arrival[row] else end_ns))

    cdef void _end_whole(self, int32_t hold) noexcept nogil:
        """End a hold: its blocks are reused like others, as if freed now, the tail first."""
        cdef int32_t i
        for i in range(self._holds[hold].count - 1, -1, -1):
            self._drop(self._holds[hold].path[i])
        self._end(hold)

    cdef void _end(self, int32_t hold) noexcept nogil:
        self._order.remove(hold)
        self._hold_of.remove(key_of(self._holds[hold].session))
        self._holds[hold].count, self._holds[hold].following = 0, self._over
        self._over = hold

    cdef int32_t _new_hold(self) except -1 nogil:
        cdef int32_t hold = self._over
        if hold >= 0:
            self._over = self._holds[hold].following
            return hold
        if self._num_holds == self._room_holds:
            resize(&self._holds, (2 * <size_t>self._room_holds + 8) * sizeof(Hold))
            self._room_holds = 2 * self._room_holds + 8
            self._order.reserve(self._room_holds)
        memset(&self._holds[self._num_holds], 0, sizeof(Hold))
        self._num_holds += 1
        return self._num_holds - 1

    cdef int32_t _held_times(self, int32_t element) noexcept nogil:
        return self._holders[element] if element < self._room_holders else 0

    cdef int _grow_holders(self, int32_t element) except -1 nogil:
        cdef int32_t before = self._room_holders
        if element < before:
            return 0
        resize(&self._holders, 2 * (<size_t>element + 1) * sizeof(int32_t))
        self._room_holders = 2 * (element + 1)
        memset(self._holders + before, 0, (self._room_holders - before) * sizeof(int32_t))
        return 0

    cdef void _put_aside(self, int32_t element) noexcept nogil:
        """Move a free block from the queue to the blocks set aside."""
        cdef Block* blocks = self._cached.blocks
        cdef int32_t last = blocks[self._ring].prev
        self._cached.take_block(element)
        self._cached.size += 1
        blocks[element].prev, blocks[element].next = last, self._ring
        blocks[last].next = blocks[self._ring].prev = element
        self._set_aside += 1

    # ---- the bulk-decode cohort

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        self._make_room(self._due[phase])
        SparseKV.step_begin(self, phase)

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        if self._set_aside == 0 or count == 1:
            self._make_room(self._due[phase])
            return SparseKV.step_run(self, phase, count)
        for _ in range(count):
            self._make_room(self._due[phase])
            SparseKV.step_run(self, phase, 1)
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        return 0

    def forget(self):
        """See KVCache."""
        while self._order.size > 0:
            self._end_whole(self._order.top())
        SparseKV.forget(self)

    # ---- the debug face

    @property
    def num_set_aside(self):
        """Blocks that no sequence owns and some hold has."""
        return self._set_aside

    @property
    def num_open(self):
        """Holds that are not over."""
        return self._order.size

    def check(self, owned_total):
        """Raise RuntimeError unless holds, blocks set aside and the queue agree; see SparseKV."""
        cdef Block* blocks = self._cached.blocks
        cdef int32_t element = blocks[self._ring].next, hold, i
        holders = {}
        for hold in range(self._num_holds):
            for i in range(self._holds[hold].count):
                holders[self._holds[hold].path[i]] = holders.get(self._holds[hold].path[i], 0) + 1
        if any(self._held_times(i) != holders.get(i, 0) for i in range(self._room_holders)):
            raise RuntimeError("holds do not have as many blocks as blocks have holds")
        aside = []
        while element != self._ring:
            aside.append(element)
            element = blocks[element].next
        expected = sorted(i for i in holders if blocks[i].references == 0)
        if sorted(aside) != expected or len(aside) != self._set_aside:
            raise RuntimeError(f"{len(aside)} blocks are set aside, {self._set_aside} counted, {len(expected)} held")
        for element in aside:           # the queue counts them
            self._cached.take_block(element)
            self._cached.append_block(element)
        try:
            SparseKV.check(self, owned_total)
        finally:
            self._set_aside = 0
            for element in aside:
                self._put_aside(element)
