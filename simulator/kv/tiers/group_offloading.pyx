"""Chunks of a replica's KV kept in host memory, where layers are in groups: vLLM's OffloadingConnector.

As `offloading`, with a chunk per group of layers. A hit needs chunks of all groups; in a group with a window only
chunks at its end. So such a group keeps only chunks at likely ends of hits. A state of linear attention is stored by
itself when it enters the prefix cache. Blocks that a window has passed over are freed while the request runs: a block
that is reused before it was offered is lost, and one that a store still reads makes the step wait.
Source: the behaviour of vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport add_row
from simulator.kv.content cimport Content
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.hybrid.tables cimport GroupTables, ListedState
from simulator.kv.tier cimport UNDECIDED, External
from simulator.kv.tiers.chunk_table cimport WRITING, Chunk
from simulator.kv.tiers.copies cimport LOAD, STORE, Copy, copy_named, name_of
from simulator.kv.tiers.eviction cimport INSERTED, MISSED, REUSED, SEEN
from simulator.kv.tiers.group_users cimport GroupUser, GroupUsers, Part
from simulator.kv.tiers.host cimport HostTier
from simulator.kv.tiers.lane cimport Lane
from simulator.kv.tiers.layer_chunks cimport LayerChunks, Tails, chunks_needed, is_kept
from simulator.kv.tiers.reuse_counts cimport ReuseCounts

from simulator.kv.holdings import Holdings
from simulator.kv.tiers.layer_chunks import chunks_of
from simulator.kv.tiers.settings import Offloading


@cython.final
cdef class GroupOffloadingTier(HostTier):
    """Host memory of one replica with a HybridKV as KV cache; see HostTier."""

    def __init__(self, settings: Offloading, Lane store, Lane load):
        HostTier.__init__(self, settings, store, load)
        self.takes_groups = True
        self._chunk_blocks = settings.blocks_per_chunk
        self._counts = ReuseCounts() if settings.store_threshold > 1 else None

    def attach(self, GroupTables kv, Content content, use=None, with_tables=False):
        """See KVTier."""
        cdef int32_t i
        HostTier.attach(self, kv, content, use, with_tables)
        self._tables = kv
        kv.lists_prompts = self._prompt_only
        groups = chunks_of(kv.layers, self._chunk_blocks)
        self._num_groups = len(groups)
        self._groups = <LayerChunks*>calloc(self._num_groups, sizeof(LayerChunks))
        self._order = <int32_t*>calloc(self._num_groups, sizeof(int32_t))
        self._cursors = <int32_t*>calloc(self._num_groups, sizeof(int32_t))
        if self._groups == NULL or self._order == NULL or self._cursors == NULL:
            raise MemoryError()
        for i, group in enumerate(groups):
            self._groups[i] = group
        for i, group in enumerate(sorted(range(self._num_groups), key=lambda i: (
                groups[i]["window_chunks"] > 0, -groups[i]["window_chunks"]))):
            self._order[i] = group
        self._num_full = sum(group["window_chunks"] == 0 for group in groups)
        self._ends_short = self._num_full < self._num_groups
        self._is_dense = kv.layers.retention_interval is None
        self._state_tokens = next((group["chunk_tokens"] for group in groups if group["is_state"]), 1)
        self.users = GroupUsers(kv, self._num_groups, content)
        for i in range(self._num_groups):
            self.users.keeps_all[i] = self._groups[i].window_chunks == 0

    def share_content(self, content):
        """See KVCache."""
        self._content = content
        self.users.share_content(content)

    def __dealloc__(self):
        free(self._groups)
        free(self._order)
        free(self._cursors)
        free(self._blocks.rows)
        free(self._told.rows)
        free(self._leaving.rows)
        free(self._offered.rows)
        free(self._new.rows)
        free(self._closing.rows)
        free(self._closing_uses.rows)

    # ---- hits

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        cdef int64_t text = self._content.text_tokens(row), most
        cdef int32_t user = self.users.get(row)
        cdef bint is_late = False
        found.tokens, found.comes_later = 0, True
        self._local_tokens = local_tokens
        self.users.users[user].loaded_tokens = 0
        self.users.forget_blocks(user)
        if self.users.users[user].first_copy >= 0:
            found.tokens = UNDECIDED
            return 0
        most = text - self._ends_short
        found.tokens = self._search(user, local_tokens, most - most % self._state_tokens, &is_late)
        if is_late or (self._tables.caches and found.tokens > 0 and self._is_read(user, found.tokens)):
            found.tokens = UNDECIDED
        return 0

    cdef int64_t _search(self, int32_t user, int64_t local_tokens, int64_t most, bint* is_late) except -1 nogil:
        """Return the tokens behind the local ones that all groups have, or will have once they are written.

        Groups are asked in order, each for the tokens that the groups before have; where one has fewer, some are asked
        again, as vLLM does.
        """
        cdef int64_t end = most, tokens = 0
        cdef int32_t first = 0, next = 0, i, group, size
        cdef bint again = True, seen_window
        cdef Found found
        while again:
            again = seen_window = False
            first, next = next, 0
            for i in range(first, self._num_groups):
                group = self._order[i]
                size = self._groups[group].chunk_tokens
                end = min(end, self._content.text_tokens(self.users.users[user].row) // size * size)
                if end - local_tokens < size:
                    is_late[0] = False
                    return 0
                found = self._find(user, group, <int32_t>(local_tokens // size), end)
                if found.count == 0 and not found.is_late:
                    is_late[0] = False
                    return 0
                if found.is_late:
                    is_late[0] = True
                else:
                    end = min(end, (local_tokens // size + found.count) * size)
                if end - local_tokens < size:
                    is_late[0] = False
                    return 0
                if end - local_tokens < tokens:
                    if is_late[0]:
                        is_late[0], again, next = False, True, 0
                    elif seen_window and not again:
                        again, next = True, self._num_full
                seen_window = seen_window or self._groups[group].window_chunks > 0
                tokens = end - local_tokens
        return tokens

    cdef Found _find(self, int32_t user, int32_t group, int32_t begin, int64_t end_tokens) except * nogil:
        """Return the chunks of a group from chunk `begin` on, for a hit that ends with `end_tokens` tokens at most."""
        cdef const LayerChunks* it = &self._groups[group]
        cdef int32_t end = <int32_t>((end_tokens + it.chunk_tokens - 1) // it.chunk_tokens), run = 0, needed, i
        cdef Found found = Found(0, False)
        self.users.name_chunks(user, group, it.chunk_tokens, end)
        if it.window_chunks == 0:
            while begin + found.count < end and self._is_there(user, group, begin + found.count, &found.is_late):
                found.count += 1
            return found
        needed = chunks_needed(it, end_tokens)
        for i in range(end - 1, begin - 1, -1):
            if self._is_there(user, group, i, &found.is_late):
                run += 1
            else:
                run, needed, found.is_late = 0, it.window_chunks, False
            if run == needed:
                found.count = i - begin + needed
                return found
        found.count = run
        return found

    cdef bint _is_there(self, int32_t user, int32_t group, int32_t chunk, bint* is_late) noexcept nogil:
        cdef int32_t element = self.table.find(self.users.part(user, group).keys[chunk])
        if not self.table.holds(element):
            return False
        is_late[0] = is_late[0] or self.table.chunks[element].references == WRITING
        return True

    cdef bint _is_read(self, int32_t user, int64_t tokens) noexcept nogil:
        """Say whether another request is loading a chunk that a hit of `tokens` tokens needs."""
        cdef const LayerChunks* it
        cdef int32_t group, begin, end, i, element
        for group in range(self._num_groups):
            it = &self._groups[group]
            end = <int32_t>((self._local_tokens + tokens + it.chunk_tokens - 1) // it.chunk_tokens)
            begin = <int32_t>(self._local_tokens // it.chunk_tokens)
            if it.window_chunks > 0:
                begin = max(begin, end - chunks_needed(it, self._local_tokens + tokens))
            for i in range(begin, end):
                element = self.table.find(self.users.part(user, group).keys[i])
                if self.table.holds(element) and self.table.chunks[element].loads > 0:
                    return True
        return False

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        cdef int64_t tokens = self._local_tokens + found.tokens
        cdef int32_t user = self.users.get(row), group, i, size, end
        cdef int32_t copy = self.copying.plan(LOAD, user, slot, 0)
        cdef const Table* table
        self._blocks.size = 0
        for group in range(self._num_groups):
            table, size = self._tables.table(slot, group), self._groups[group].block_size
            for i in range(table.size):
                if table.blocks[i] > 0:
                    self._tables.announce(table.blocks[i])
            end = <int32_t>((tokens + size - 1) // size)
            i = self._first_to_read(group, slot, end)
            if i < end:
                self._read(user, group, i // self._chunk_blocks, tokens, copy)
            for i in range(i, end):
                add_row(&self._blocks, table.blocks[i])
            self.users.part(user, group).next = <int32_t>(
                (tokens + self._groups[group].chunk_tokens - 1) // self._groups[group].chunk_tokens)
        self.users.users[user].loaded_tokens = <int32_t>found.tokens
        self.copying.copies[copy].num_blocks = self._blocks.size
        self.copying.copies[copy].sibling = self.users.users[user].first_copy
        self.users.users[user].first_copy = copy
        if self._log is not None:
            self._note("loads", copy)
        return NEVER_NS

    cdef int32_t _first_to_read(self, int32_t group, int32_t slot, int32_t end) noexcept nogil:
        """Return the first block of a table that is to be loaded; `end`: there is none."""
        cdef const Table* table = self._tables.table(slot, group)
        cdef int32_t size = self._groups[group].block_size
        cdef int32_t i = <int32_t>((self._local_tokens + size - 1) // size)
        while i < end and (table.blocks[i] <= 0 or self._tables.is_listed(table.blocks[i])):
            i += 1
        return i

    cdef int _read(self, int32_t user, int32_t group, int32_t begin, int64_t tokens, int32_t copy) except -1 nogil:
        """Read chunks of a group, from `begin` to the one that holds token `tokens` - 1."""
        cdef Part* part = self.users.part(user, group)
        cdef int32_t end = <int32_t>(
            (tokens + self._groups[group].chunk_tokens - 1) // self._groups[group].chunk_tokens), i, element
        for i in range(begin, end):
            element = self.table.find(part.keys[i])
            part.uses[i] |= SEEN if part.uses[i] & INSERTED else SEEN | REUSED
            self.table.begin_load(element)
            self._hit_chunks += 1
            self.copying.add_chunk(copy, element)
        return 0

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        cdef int32_t user = self.users.find(row)
        return self.users.users[user].loaded_tokens if user >= 0 else 0

    # ---- the calls of a step

    cdef int64_t _tokens_to_store(self, int32_t row, int64_t tokens) noexcept nogil:
        return min(tokens, <int64_t>self._content.prompt_tokens(row)) if self._prompt_only else tokens

    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int32_t user = self.users.get(row)
        self.users.users[user].limit = self._tokens_to_store(row, min(computed, text))
        self.users.users[user].junction = self._tables.junction(slot)
        self.users.take_blocks(user, slot)
        return add_row(&self._told, user)

    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil:
        cdef int32_t user = self.users.find(row), prompt = self._content.prompt_tokens(row), group
        if not self._prompt_only or user < 0:
            return False
        for group in range(self._num_groups):
            if self.users.part(user, group).next < prompt // self._groups[group].chunk_tokens:
                return False
        return True

    cdef int preempted(self, int32_t row) except -1 nogil:
        cdef int32_t user = self.users.find(row)
        cdef int32_t copy = self.users.users[user].first_copy if user >= 0 else -1
        while copy >= 0:
            self.copying.flush(copy)
            copy = self.copying.copies[copy].sibling
        if user >= 0:
            self.users.forget_blocks(user)
        self._tables.drop_listed(row)
        return 0

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int32_t user = self.users.find(row), prompt = self._content.prompt_tokens(row)
        cdef GroupUser* it
        self._num_left += 1
        self._tables.drop_listed(row)
        if user < 0:
            return 0
        it = &self.users.users[user]
        it.limit = self._tokens_to_store(row, min(max(<int64_t>prompt, text - 1), computed))
        it.offers = self._may_offer(user)
        self._num_offering += it.offers
        self._fence_all(user)
        self.users.leave(user)
        return add_row(&self._leaving, user)

    cdef int gives_up(self, int32_t row) except -1 nogil:
        cdef int32_t user = self.users.find(row)
        self._num_left += 1
        self._tables.drop_listed(row)
        if user < 0:
            return 0
        self.users.leave(user)
        return add_row(&self._leaving, user)

    cdef int plan(self) except -1 nogil:
        cdef int32_t i, user
        self._told_of_leaving = self._num_left > 0
        self._num_left = 0
        self._flush_touched()
        self._store_states()
        for i in range(self._told.size):
            self._offer(self._told.rows[i], False)
        for i in range(self._leaving.size):
            user = self._leaving.rows[i]
            if self.users.users[user].offers:
                self._offer(user, True)
        for i in range(self._leaving.size):
            self._close(self._leaving.rows[i])
        self._told.size = self._leaving.size = self._num_offering = 0
        self._tables.turn += 1
        return 0

    cdef int _flush_touched(self) except -1 nogil:
        """Flush stores of blocks that the step reuses."""
        cdef int32_t i
        for i in range(self._tables.fences.num_touched):
            self.copying.flush(copy_named(self._tables.fences.touched[i].reader))
        self._tables.fences.num_touched = 0
        return 0

    # ---- chunks offered by requests

    cdef int _store_states(self) except -1 nogil:
        """Store states that entered the prefix cache, by request, in the order of the first one of each."""
        cdef const ListedState* states = self._tables.listed_states
        cdef int32_t group, i, user
        for group in range(self._num_groups if self._tables.num_listed_states > 0 else 0):
            for i in range(self._tables.num_listed_states):
                if states[i].group == group:
                    user = self.users.get(states[i].row)
                    if self.users.users[user].states_turn <= self._tables.turn:
                        self.users.users[user].states_turn = self._tables.turn + 1
                        self._store_states_of(user, group)
        self._tables.num_listed_states = 0
        return 0

    cdef int _store_states_of(self, int32_t user, int32_t first) except -1 nogil:
        """Store the states of one request, of which the first is in group `first`."""
        cdef const ListedState* states = self._tables.listed_states
        cdef int32_t row = self.users.users[user].row, group, i, copy, size
        for group in range(first, self._num_groups):
            size = self._groups[group].chunk_tokens
            for i in range(self._tables.num_listed_states):
                if (states[i].row != row or states[i].group != group or states[i].end % size
                        or states[i].end > self._tokens_to_store(row, states[i].end)):
                    continue
                self.users.name_chunks(user, group, size, <int32_t>(states[i].end // size))
                self._offered.size = 0
                add_row(&self._offered, group)
                add_row(&self._offered, <int32_t>(states[i].end // size) - 1)
                if self._sort_out(user) and self._new.size > 0:
                    self._blocks.size = 0
                    add_row(&self._blocks, states[i].block)
                    copy = self._write(user)
                    self._tables.fences.put_up(states[i].block, name_of(&self.copying.copies[copy], copy), 0)
        return 0

    cdef int32_t _limit(self, int32_t user, int32_t group) noexcept nogil:
        """Return how many chunks of a group may be stored, which have blocks to the end."""
        return <int32_t>min(self.users.users[user].limit // self._groups[group].chunk_tokens,
                            <int64_t>self.users.part(user, group).size // self._chunk_blocks)

    cdef int _offer(self, int32_t user, bint has_left) except -1 nogil:
        """Plan to write new chunks among those not offered yet; if there is no room, offer them again later."""
        cdef int32_t group, i, k, block
        cdef const Part* part
        self._offered.size = self._new.size = self._blocks.size = 0
        for group in range(self._num_groups):
            if not self._groups[group].is_state:
                self._list_kept(user, group, has_left)
        if self._offered.size > 0 and not self._sort_out(user):
            return 0
        for i in range(0, self._new.size, 2):
            part = self.users.part(user, self._new.rows[i])
            for k in range(self._new.rows[i + 1] * self._chunk_blocks,
                           (self._new.rows[i + 1] + 1) * self._chunk_blocks):
                block = self.users.block(part, k)
                if block != 0:
                    add_row(&self._blocks, block)
        if self._new.size > 0:
            self._fence(user, self._write(user), has_left)
        for group in range(self._num_groups):
            self.users.pass_over(self.users.part(user, group), self._limit(user, group), self._chunk_blocks)
        return 0

    cdef bint _may_offer(self, int32_t user) noexcept nogil:
        """Say whether a request that has left may have a chunk that was not offered."""
        cdef int32_t prompt = self._content.prompt_tokens(self.users.users[user].row), group, end
        cdef const LayerChunks* it
        for group in range(self._num_groups):
            it, end = &self._groups[group], self._limit(user, group)
            if it.is_state:
                continue
            if end > self.users.part(user, group).next or self._looks_back(it, end, prompt):
                return True
        return False

    cdef bint _looks_back(self, const LayerChunks* it, int32_t end, int32_t prompt) noexcept nogil:
        """Say whether a text that has ended keeps further chunks: its last segment does not end with the prompt."""
        return self._is_dense and it.align_blocks > 0 and end != prompt // it.chunk_tokens

    cdef int _list_kept(self, int32_t user, int32_t group, bint has_left) except -1 nogil:
        """List the chunks of a group to be offered.

        Without a retention interval a text that has ended has a last segment, and its end is kept, too.
        """
        cdef const LayerChunks* it = &self._groups[group]
        cdef Part* part = self.users.part(user, group)
        cdef int32_t end = self._limit(user, group), begin = part.next, count = self._chunk_blocks, i
        cdef int32_t prompt = self._content.prompt_tokens(self.users.users[user].row)
        cdef int32_t prompt_end = prompt // it.chunk_tokens
        cdef bint again = has_left and self._looks_back(it, end, prompt)
        cdef Tails tails, before
        tails.prompt, tails.junction, tails.at_ends = prompt - 1, self.users.users[user].junction, not self._is_dense
        before = tails
        before.end = prompt_end * count
        tails.end = end * count if has_left else before.end if end <= prompt_end else -1
        if again:
            begin = min(begin, (end * count - end * count % it.align_blocks) // count)
        self.users.name_chunks(user, group, it.chunk_tokens, end)
        for i in range(begin, end):
            if self.users.block(part, i * count + count - 1) == 0:
                continue
            if again and i < part.next and is_kept(it, &before, i):
                continue
            if is_kept(it, &tails, i):
                add_row(&self._offered, group)
                add_row(&self._offered, i)
        return 0

    cdef int _sort_out(self, int32_t user) except -1 nogil:
        """Find the new chunks among those offered; 0: there is no room for them."""
        cdef int32_t i, element
        cdef Part* part
        cdef uint8_t* use
        cdef Chunk* chunk
        self._new.size = 0
        self._guard += 1
        self._num_guarded = 0
        for i in range(0, self._offered.size, 2):
            part = self.users.part(user, self._offered.rows[i])
            use = &part.uses[self._offered.rows[i + 1]]
            element = self.table.find(part.keys[self._offered.rows[i + 1]])
            chunk = &self.table.chunks[element]
            if self._counts is not None and (
                    self._counts.count(part.keys[self._offered.rows[i + 1]]) < self._threshold) and (
                    not self.table.holds(element)):
                continue
            if not self.table.holds(element):
                add_row(&self._new, self._offered.rows[i])
                add_row(&self._new, self._offered.rows[i + 1])
                use[0] |= SEEN
            elif chunk.references != WRITING:
                chunk.guard = self._guard
                self._num_guarded += chunk.references == 0
                use[0] |= SEEN if use[0] & INSERTED else SEEN | REUSED
        self._tell_missed(user)
        return self._new.size == 0 or self._make_room(self._new.size // 2)

    cdef void _tell_missed(self, int32_t user) noexcept nogil:
        cdef Part* part
        cdef int32_t i, chunk
        for i in range(self._new.size - 2, -1, -2):
            part, chunk = self.users.part(user, self._new.rows[i]), self._new.rows[i + 1]
            if not part.uses[chunk] & MISSED:
                part.uses[chunk] |= MISSED
                self.policy.missed(self.table.find(part.keys[chunk]))

    cdef int32_t _write(self, int32_t user) except -1 nogil:
        """Plan one copy of all new chunks, from `_blocks`."""
        cdef int32_t copy = self.copying.plan(STORE, user, -1, self._blocks.size), i, chunk
        cdef int32_t newcomers = self.policy.newcomers()
        cdef Part* part
        self.table.prepare(self._new.size // 2)
        for i in range(0, self._new.size, 2):
            part, chunk = self.users.part(user, self._new.rows[i]), self._new.rows[i + 1]
            part.uses[chunk] |= INSERTED
            self.copying.add_chunk(copy, self.table.add(part.keys[chunk], chunk, newcomers))
        self.copying.copies[copy].sibling = self.users.users[user].first_copy
        self.users.users[user].first_copy = copy
        if self._log is not None:
            self._note("stores", copy)
        return copy

    # ---- fences on blocks that are read though they are free

    cdef int _fence(self, int32_t user, int32_t copy, bint has_left) except -1 nogil:
        """Put fences on the blocks of `_new` that may be reused before they are read."""
        cdef int64_t name = name_of(&self.copying.copies[copy], copy)
        cdef const Part* part
        cdef int32_t i, k, block
        for i in range(0, self._new.size, 2):
            if self._groups[self._new.rows[i]].window_chunks == 0 and not has_left:
                continue
            part = self.users.part(user, self._new.rows[i])
            for k in range(self._new.rows[i + 1] * self._chunk_blocks,
                           (self._new.rows[i + 1] + 1) * self._chunk_blocks):
                block = self.users.block(part, k)
                if block == 0:
                    continue
                self._tables.fences.put_up(block, name, k)
                if self._tables.was_given_after(self._tables.turn - 1, block) and (
                        self._groups[self._new.rows[i]].window_chunks == 0):
                    self.copying.flush(copy)    # the step being formed reused it
        return 0

    cdef int _fence_all(self, int32_t user) except -1 nogil:
        """Put fences on a leaving request's blocks of full attention that copies still read."""
        cdef int32_t copy = self.users.users[user].first_copy, i, k, group, place
        cdef const Copy* it
        cdef const Part* part
        while copy >= 0:
            it = &self.copying.copies[copy]
            for i in range(it.num_chunks if it.direction == STORE else 0):
                place = self.table.chunks[it.chunks[i]].begin
                for group in range(self._num_groups):
                    part = self.users.part(user, group)
                    if self._groups[group].window_chunks > 0 or place >= part.num_keys or (
                            part.keys[place] != self.table.chunks[it.chunks[i]].hash):
                        continue
                    for k in range(place * self._chunk_blocks, min((place + 1) * self._chunk_blocks, part.size)):
                        self._tables.fences.put_up(part.blocks[k], name_of(it, copy), k)
            copy = it.sibling
        return 0

    # ---- requests that leave, and copies that end

    cdef int _close(self, int32_t user) except -1 nogil:
        """Report to the policy the chunks that a request used, from the last to the first, after it has left."""
        cdef Part* part
        cdef int32_t group, first, element, i
        cdef int64_t end, first_end
        self._closing.size = self._closing_uses.size = 0
        memset(self._cursors, 0, self._num_groups * sizeof(int32_t))
        while True:
            first, first_end = -1, 0
            for group in range(self._num_groups):       # the next by its end, then by its group
                part = self.users.part(user, group)
                while self._cursors[group] < part.num_keys and part.uses[self._cursors[group]] == 0:
                    self._cursors[group] += 1
                end = (<int64_t>self._cursors[group] + 1) * self._groups[group].chunk_tokens
                if self._cursors[group] < part.num_keys and (first < 0 or end < first_end):
                    first, first_end = group, end
            if first < 0:
                break
            part, i = self.users.part(user, first), self._cursors[first]
            self._cursors[first] += 1
            element = self.table.find(part.keys[i])
            if self.table.holds(element):
                add_row(&self._closing, element)
                add_row(&self._closing_uses, part.uses[i])
        for i in range(self._closing.size - 1, -1, -1):
            self.policy.closed(self._closing.rows[i], self._closing_uses.rows[i])
        self.users.users[user].is_closed = True
        if self.users.users[user].first_copy < 0:
            self.users.drop(user)
        return 0

    cdef bint has_acted(self) noexcept nogil:
        return self.copying.has_acted or self._told_of_leaving

    cdef bint is_quiet(self) noexcept nogil:
        return HostTier.is_quiet(self) and self._num_offering == 0

    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil:
        cdef int32_t copy = self.copying.take_done(num_done), slot
        while copy >= 0:
            slot = self.copying.copies[copy].slot
            self._end(copy)
            if slot >= 0:
                return slot
            copy = self.copying.take_done(num_done)
        return -1

    cdef void _end(self, int32_t copy) noexcept nogil:
        cdef const Copy* it = &self.copying.copies[copy]
        cdef GroupUser* user = &self.users.users[it.user]
        cdef int32_t* link = &user.first_copy
        cdef int32_t i
        self._count(copy, user.row, user.loaded_tokens if it.direction == LOAD else self._stored_tokens(copy))
        for i in range(it.num_chunks):
            if it.direction == STORE:
                self.table.written(it.chunks[i])
            else:
                self.table.end_load(it.chunks[i])
        while link[0] != copy:
            link = &self.copying.copies[link[0]].sibling
        link[0] = it.sibling
        self._tables.fences.take_down(name_of(it, copy))
        if user.is_closed and user.first_copy < 0:
            self.users.drop(it.user)
        self.copying.give_back(copy)

    cdef int64_t _stored_tokens(self, int32_t copy) noexcept nogil:
        """Return the tokens that a copy stored, as counted by the group that is searched first."""
        cdef const Copy* it = &self.copying.copies[copy]
        cdef const Part* part = self.users.part(it.user, self._order[0])
        cdef int32_t count = 0, i, place
        for i in range(it.num_chunks):
            place = self.table.chunks[it.chunks[i]].begin
            count += place < part.num_keys and part.keys[place] == self.table.chunks[it.chunks[i]].hash
        return <int64_t>count * self._groups[self._order[0]].chunk_tokens

    cdef int fail(self) except -1 nogil:
        self.copying.cancel()
        self._told.size = self._leaving.size = self._num_left = self._num_offering = 0
        self._tables.num_listed_states = 0
        self.users.clear()
        with gil:
            self.table.clear()
            self._tables.fences.clear()
        return 0

    def holdings(self):
        """See KVTier; the first group of full attention, as for `KVCache.follow`.

        None: there is no such group, or blocks are of different sizes.
        """
        if not self._tables.layers.is_even:
            return None
        return Holdings(self._groups[self._order[0]].chunk_tokens, self._tables.grain(), (self.table,))

    # ---- the debug face

    cdef int _note(self, str what, int32_t copy) except -1 nogil:
        """Note a copy that was planned: number, request, slots, blocks."""
        cdef const Copy* it = &self.copying.copies[copy]
        cdef int32_t i
        with gil:
            self._log[what].append((
                it.number, self.users.users[it.user].row,
                [self.table.chunks[it.chunks[i]].slot for i in range(it.num_chunks)],
                [self._blocks.rows[i] for i in range(self._blocks.size)]))
        return 0

    def take_log(self):
        """See HostTier; of a copy: number, row, slots, blocks."""
        return HostTier.take_log(self)
