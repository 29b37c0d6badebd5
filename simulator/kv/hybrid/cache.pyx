"""KV blocks of models with layers that need different parts of a text, and the bulk-decode cohort of their sequences.

Members of the cohort take and give back blocks at known times (turn_events.pxd). Where no decision depends on which
block is which their blocks are counted; else each member is visited in the turns with an event.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.hybrid.block_store cimport NO_BLOCK
from simulator.kv.hybrid.layer_kind cimport LayerKind, Table
from simulator.kv.hybrid.tables cimport GroupTables, Holder, place_name
from simulator.kv.hybrid.turn_events cimport TurnEvents, Visit
from simulator.kv.members cimport Member, Members


@cython.final
cdef class HybridKV(GroupTables):
    """A pool with a block table per group of layers; see GroupTables."""

    cdef TurnEvents _turn_events  # None: no sequence has joined yet
    cdef bint _visits           # members are visited; else they are counted
    cdef Members _members       # the cohort, by phase, where members are visited
    cdef int32_t* _cursors      # [_beats.num_visits] slots: the next member to be visited in this iteration; -1: none

    def __cinit__(self, int32_t num_blocks, int32_t block_size, plan, *_, **__):
        self._visits = self._caching or plan.with_tables
        self._members = Members(block_size)
        self._given = <int32_t*>calloc(block_size, sizeof(int32_t))
        if self._given == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._cursors)

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        self._members.reserve(num_slots)
        return GroupTables.reserve_slots(self, num_slots)

    cdef bint may_join(self, int32_t slot, int64_t computed) noexcept nogil:
        cdef Holder* holder = &self._holders[slot]
        cdef int64_t settled = computed - 1 - self.unknown_tokens, until
        cdef const Table* table
        cdef int32_t number
        if settled < 0 or self._num_kinds > 64:
            return False
        holder.active = 0
        holder.regular_until = INT64_MAX
        for number in range(self._num_kinds):
            table = &self._tables[<size_t>slot * self._num_groups + (<LayerKind>self._searched[number]).groups[0]]
            if table.size != blocks_for(computed, (<LayerKind>self._searched[number]).block_size):
                return False
            until = (<LayerKind>self._searched[number]).steady_until(table, computed, settled)
            if until <= settled + 1 or self._holds_last_state(slot, number, table):
                return False
            if until == INT64_MAX:
                holder.active |= <uint64_t>1 << number
            else:
                holder.regular_until = min(holder.regular_until, until + self.unknown_tokens)
        return True

    cdef bint _holds_last_state(self, int32_t slot, int32_t number, const Table* table) noexcept nogil:
        """Say whether a sequence holds the last state of its prompt beside a newer one: it is noted in each turn."""
        cdef int32_t index
        if not self._has_states or not self._caching or not (<LayerKind>self._searched[number]).keeps_newest:
            return False
        index = (self._content.prompt_tokens(self._holders[slot].row) - 1) // (
            (<LayerKind>self._searched[number]).block_size) - 1
        return 0 <= index < table.size - 1 and table.blocks[index] != NO_BLOCK

    cdef int64_t regular_until(self, int32_t slot) noexcept nogil:
        return self._holders[slot].regular_until

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        if self._turn_events is None:
            with gil:
                self._lay_out()
        if self._visits:
            self._members.join(slot, phase, order)
        else:
            self._reserve_for_life(slot)
        self._turn_events.count(phase, self._holders[slot].active, 1, self._due, self._given)
        self.slack += self._turn_events.most_given
        return 0

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        if self._visits:
            self._members.leave(slot, phase)
        self._turn_events.count(phase, self._holders[slot].active, -1, self._due, self._given)
        self.slack -= self._turn_events.most_given

    cdef int _lay_out(self) except -1:
        self._turn_events = TurnEvents(self._owners[1], self.block_size, self.unknown_tokens, self._caching)
        self._cursors = <int32_t*>calloc(self._turn_events.num_visits, sizeof(int32_t))
        if self._cursors == NULL:
            raise MemoryError()
        return 0

    cdef int _reserve_for_life(self, int32_t slot) except -1 nogil:
        """Give the tables of a member room for its longest text: `settle` cannot fail."""
        cdef int64_t tokens = min(self._content.most_tokens(self._holders[slot].row), self._max_model_len)
        cdef Table* table
        cdef int32_t group, room
        for group in range(self._num_groups):
            table = &self._tables[<size_t>slot * self._num_groups + group]
            room = blocks_for(tokens, (<LayerKind>self._kinds[group]).block_size) + 1
            if room > table.room and not (<LayerKind>self._kinds[group]).is_counted:
                resize(&table.blocks, room * sizeof(int32_t))
                table.room = room
        return 0

    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil:
        cdef Holder* holder = &self._holders[slot]
        if not self._visits:
            self._advance(slot, num_computed)
        else:
            self._level(slot, num_computed)
            if not self._lists(holder):
                holder.hashed_tokens = max(holder.hashed_tokens, (
                    num_computed - self.unknown_tokens) // self.block_size * self.block_size)
        holder.computed = num_computed

    cdef void _level(self, int32_t slot, int64_t computed) noexcept nogil:
        """Give the counted tables of a member the shape that its visits left."""
        cdef Table* tables = &self._tables[<size_t>slot * self._num_groups]
        cdef const Table* first
        cdef const int32_t* groups
        cdef int32_t number, size, i
        for number in range(self._num_kinds):
            if not (<LayerKind>self._searched[number]).is_counted:
                continue
            groups = (<LayerKind>self._searched[number]).groups
            first = &tables[groups[0]]
            size = max(first.size, blocks_for(computed, (<LayerKind>self._searched[number]).block_size))
            for i in range((<LayerKind>self._searched[number]).num_groups):
                tables[groups[i]].size = size
                if (<LayerKind>self._searched[number]).in_a_row:
                    tables[groups[i]].begin = first.begin

    cdef int _advance(self, int32_t slot, int64_t computed) except -1 nogil:
        """Bring the tables to the state after the turns up to `computed` tokens; their blocks have been counted."""
        cdef int32_t free_blocks = self.free_blocks, group, size
        if computed <= self._holders[slot].computed:
            return 0
        self.free_blocks = self.num_blocks
        for group in range(self._num_groups):
            size = (<LayerKind>self._kinds[group]).block_size
            if (<LayerKind>self._kinds[group]).keeps_newest:        # the one before the newest may still be there
                self._extend(slot, group, computed - size)
            self._extend(slot, group, computed)
        self.slide(slot, computed - 1 - self.unknown_tokens)
        self.free_blocks = free_blocks
        self._holders[slot].computed = computed
        return 0

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        cdef int32_t i, bucket
        if not self._visits:
            self.free_blocks -= self._due[phase]
            return
        for i in range(self._turn_events.num_visits if self._members.size > 0 else 0):
            bucket = phase - self._turn_events.visits[i].rest
            self._cursors[i] = self._members.first[bucket + self.block_size if bucket < 0 else bucket]

    cdef int step_before(self, int64_t order) except -1 nogil:
        """Visit the members with an event in this iteration, by order."""
        cdef const Member* members = self._members.members
        cdef int32_t i, next, slot
        while self._visits and self._members.size > 0:
            next = -1
            for i in range(self._turn_events.num_visits):
                slot = self._cursors[i]
                if slot >= 0 and members[slot].order < order and (
                        next < 0 or members[slot].order < members[self._cursors[next]].order):
                    next = i
            if next < 0:
                break
            slot = self._cursors[next]
            self._cursors[next] = members[slot].after
            self._visit(slot, &self._turn_events.visits[next])
        return 0

    cdef int _visit(self, int32_t slot, const Visit* visit) except -1 nogil:
        """Do the events of a member's turn."""
        cdef Holder* holder = &self._holders[slot]
        cdef int64_t ahead = (visit.rest - holder.computed) % self.block_size
        cdef int64_t computed = holder.computed + (ahead + self.block_size if ahead < 0 else ahead), settled
        cdef int32_t i, last
        settled = computed - self.unknown_tokens
        if not self._lists(holder):                         # its full blocks were not listed in earlier visits
            holder.hashed_tokens = max(holder.hashed_tokens, settled // self.block_size * self.block_size)
        for i in range(visit.num_givers):
            if (<LayerKind>self._kinds[visit.givers[i]]).in_a_row:
                self._pass(slot, <LayerKind>self._kinds[visit.givers[i]], settled)
            else:
                self._slide(slot, visit.givers[i], settled)
        for i in range(visit.num_takers):
            self._extend(slot, visit.takers[i], computed + 1)
            if self.fences is not None:
                last = self.table(slot, visit.takers[i]).size - 1
                self.announce(self.table(slot, visit.takers[i]).blocks[last])
        if visit.num_counted > 0:                           # `_level` makes their tables longer
            self.free_blocks -= visit.num_counted
            self.store.take_nameless(self.free_blocks)
        holder.computed = holder.announced = computed + 1
        if visit.fills and self._lists(holder):
            self._level(slot, computed + 1)
            self.cache(slot, settled + 1)
        return 0

    cdef int _pass(self, int32_t slot, LayerKind kind, int64_t settled) except -1 nogil:
        """Give back blocks of a kind `in_a_row` that a member needs no more."""
        cdef Table* tables = self._tables + <size_t>slot * self._num_groups + kind.groups[0]
        cdef const Holder* holder = &self._holders[slot]
        cdef int32_t begin = tables.begin, end = <int32_t>(kind.outdated(settled) // kind.block_size), i
        if end <= begin:
            return 0
        if end == begin + 1 and self._full_decides and not self._content.has_been_preempted(holder.row) and (
                self._is_own(slot, kind.groups[0], begin)):
            tables.begin = end
            tables.passed = self.store.release_passed(
                place_name(holder.row, kind.groups[0], begin), kind.num_groups, tables.passed)
            self.free_blocks += kind.num_groups
            return 0
        for i in range(kind.num_groups):
            tables[i].begin = begin
            if <int64_t>end * kind.block_size <= holder.public_tokens and end <= tables[i].num_written:
                self.free_blocks += self.store.release(tables[i].blocks, begin, end)
                self.num_shared -= self.store.num_left_alone
            else:
                self._give_up(slot, kind.groups[i], begin, end, True)
            tables[i].begin = end
        return 0

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            self.step_begin(phase)
            self.step_before(INT64_MAX)
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        return 0

    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil:
        cdef int32_t group, count = 0
        if is_member and not self._visits:
            self._advance(slot, num_computed)
        elif is_member:
            self._level(slot, num_computed)
        for group in range(self._num_groups):
            count += self._num_held(slot, group, self.table(slot, group).begin)
        return count
