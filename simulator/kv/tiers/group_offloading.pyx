"""Chunks of a replica's KV kept in host memory, where layers are in groups: vLLM's OffloadingConnector.

A hit needs chunks of all groups; in a group with a window only
chunks at its end. So such a group keeps only chunks at likely ends of hits. A state of linear attention is stored by
itself when it enters the prefix cache. Blocks that a window has passed over are freed while the request runs: a block
that is reused before it was offered is lost, and one that a store still reads makes the step wait.
Source: the behaviour of vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport RowList, add_row
from simulator.kv.content cimport Content
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.hybrid.listed_states cimport ListedState
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.tier cimport UNDECIDED, External
from simulator.kv.tiers.chunk_table cimport WRITING
from simulator.kv.tiers.copies cimport LOAD, STORE, Copy, copy_named, name_of
from simulator.kv.tiers.group_users cimport GroupUsers
from simulator.kv.tiers.lane cimport Lane
from simulator.kv.tiers.layer_chunks cimport LayerChunks, Tails, chunks_needed, is_block_kept, is_kept
from simulator.kv.tiers.offloading cimport CHUNK_BITS, MOST_GROUPS, OffloadingTier, chunk_of, place_of
from simulator.kv.tiers.users cimport Part, User

from simulator.kv.tiers.layer_chunks import chunks_of
from simulator.kv.tiers.settings import Offloading


cdef struct Found:              # chunks of a text that are present in one group, from some chunk on
    int32_t count
    bint is_late                # one of the counted chunks is still being written


@cython.final
cdef class GroupOffloadingTier(OffloadingTier):
    """Host memory of one replica with a HybridKV; see OffloadingTier."""

    cdef GroupUsers users               # _users
    cdef GroupTables _tables            # the KV cache
    cdef LayerChunks* _groups           # [_num_groups]
    cdef int32_t* _order                # [_num_groups] groups in the order in which they are searched: full ones first
    cdef int32_t* _cursors              # [_num_groups] of the user being closed: chunks visited
    cdef int32_t _num_groups
    cdef int32_t _num_full
    cdef int32_t _state_tokens          # of a chunk of states; 1: there are no states
    cdef bint _ends_short               # a hit leaves a token to compute
    cdef bint _needs_all_blocks
    cdef bint _is_dense                 # no retention interval: every possible end of a hit is kept
    cdef RowList _scheduled             # users that the step being formed computes, in order
    cdef int32_t _num_offering          # users of `_leaving` that have chunks to offer
    cdef RowList _blocks                # of the copy being planned
    cdef RowList _closing               # elements of the user being closed, and their uses
    cdef RowList _closing_uses

    def __init__(self, settings: Offloading, Lane store, Lane load, Lane step=None):
        OffloadingTier.__init__(self, settings, store, load, step)
        self.takes_groups, self.names_blocks = True, False
        self._needs_all_blocks = settings.needs_all_blocks

    def attach(self, GroupTables kv, Content content, use=None, with_tables=False):
        """See KVTier."""
        cdef int32_t i
        self._tables = kv
        kv.lists_prompts = self._prompt_only
        groups = chunks_of(kv.layers, self._chunk_blocks)
        self._num_groups = len(groups)
        if self._num_groups > MOST_GROUPS:
            raise ValueError(f"{self._num_groups} groups of layers; at most {MOST_GROUPS} are supported")
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
        OffloadingTier.attach(self, kv, content, use, with_tables)
        self._chunk_tokens = self._groups[self._order[0]].chunk_tokens

    def _new_users(self):
        self.users = GroupUsers(self._content, 1, True, self._num_groups, self._tables)
        for i in range(self._num_groups):
            self.users.keeps_all[<int32_t>i] = self._groups[<int32_t>i].window_chunks == 0
        return self.users

    def __dealloc__(self):
        free(self._groups)
        free(self._order)
        free(self._cursors)
        free(self._blocks.rows)
        free(self._scheduled.rows)
        free(self._closing.rows)
        free(self._closing_uses.rows)

    # ---- hits

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        cdef int64_t text = self._content.text_tokens(row)
        cdef int32_t user = self.users.get(row)
        cdef bint is_late = False, is_read = False
        cdef int32_t group
        found.tokens, found.comes_later = 0, True
        self._matched_tokens = local_tokens
        self.users.users[user].loaded_tokens = 0
        self.users.forget_blocks(user)
        for group in range(self._num_groups if self._offers_again else 0):
            self.users.part(user, group).offered = 0
        if self.users.users[user].first_copy >= 0:
            found.tokens = UNDECIDED
            return 0
        if self.chain is None:
            found.tokens = self._hit(user, text, local_tokens, &is_late, &is_read)
        else:
            found.tokens = self._hit_with_levels(user, text, local_tokens, &is_late, &is_read)
        if is_late or is_read:
            found.tokens = UNDECIDED
        self._load_in_step(text, local_tokens, found)
        return 0

    cdef int64_t _hit(self, int32_t user, int64_t text, int64_t local_tokens, bint* is_late,
                      bint* is_read) except -1 nogil:
        """Find the tokens behind the local ones that all groups have, or will have once they are written.

        Groups are searched in order, each for the tokens that the groups before have; where one has fewer, some are
        searched again, as vLLM does.
        """
        cdef int64_t end = text - self._ends_short, tokens = 0
        cdef uint32_t left = 0              # bits of groups that have left the last chunk of a hit of this length
        cdef int32_t first = 0, next = 0, i, group, size
        cdef bint again = True, seen_window, drop
        cdef Found found
        end -= end % self._state_tokens
        while again:
            again = seen_window = False
            first, next = next, 0
            for i in range(first, self._num_groups):
                group = self._order[i]
                size = self._groups[group].chunk_tokens
                end = min(end, text // size * size)
                drop = self._groups[group].drops and left >> group & 1 == 0
                found.count, found.is_late = 0, False
                if end - local_tokens >= size:
                    self._find(user, group, <int32_t>(local_tokens // size), end, text // size * size if drop else 0,
                               &found)
                if found.is_late:
                    is_late[0] = True
                elif found.count > 0:
                    left |= <uint32_t>drop << group
                    end = min(end, (local_tokens // size + found.count - drop) * size)
                if end - local_tokens < size or (found.count == 0 and not found.is_late):
                    is_late[0] = False
                    return 0
                if end - local_tokens < tokens:
                    left = left if self._groups[group].drops else 0
                    if is_late[0]:
                        is_late[0], again, next = False, True, 0
                    elif seen_window and not again:
                        again, next = True, self._num_full
                seen_window = seen_window or self._groups[group].window_chunks > 0
                tokens = end - local_tokens
        is_read[0] = self._caches and self._is_read(user, local_tokens, tokens)
        return tokens

    cdef int _find(self, int32_t user, int32_t group, int32_t begin, int64_t end_tokens, int64_t last_tokens,
                   Found* found) except -1 nogil:
        """Find the chunks of a group from chunk `begin` on, for a hit that ends with `end_tokens` tokens at most.

        last_tokens : 0, or of the text in whole chunks, of which the hit leaves the last one found.
        """
        cdef const LayerChunks* it = &self._groups[group]
        cdef int32_t drop = last_tokens > 0, run = 0, needed, i
        cdef int64_t most = min(end_tokens + it.chunk_tokens, last_tokens) if drop else end_tokens
        cdef int32_t end = <int32_t>((most + it.chunk_tokens - 1) // it.chunk_tokens)
        self.users.name_chunks(user, group, it.chunk_tokens, end)
        if it.window_chunks == 0:
            while begin + found.count < end and self._is_there(user, group, begin + found.count, &found.is_late):
                found.count += 1
            return 0
        needed = chunks_needed(it, min(end_tokens, <int64_t>(end - drop) * it.chunk_tokens)) + drop
        for i in range(end - 1, begin - 1, -1):
            if self._is_there(user, group, i, &found.is_late):
                run += 1
            else:
                run, needed, found.is_late = 0, it.window_chunks + drop, False
            if run == needed:
                found.count = i - begin + needed
                return 0
        found.count = run
        return 0

    cdef bint _is_there(self, int32_t user, int32_t group, int32_t chunk, bint* is_late) except -1 nogil:
        cdef int32_t element = self.table.find(self.users.part(user, group).hashes[chunk])
        if self.table.holds(element):
            self._keep_for_hit(element)
            is_late[0] = is_late[0] or self.table.chunks[element].references == WRITING
            return True
        if self._is_below(user, place_of(group, chunk)):
            is_late[0] = True           # it will be, once it is read
            return True
        return False

    cdef bint _is_read(self, int32_t user, int64_t local_tokens, int64_t tokens) noexcept nogil:
        """Say whether another request is loading a chunk that a hit of `tokens` tokens needs."""
        cdef const LayerChunks* it
        cdef int32_t group, begin, end, i, element
        for group in range(self._num_groups):
            it = &self._groups[group]
            end = <int32_t>((local_tokens + tokens + it.chunk_tokens - 1) // it.chunk_tokens)
            begin = <int32_t>(local_tokens // it.chunk_tokens)
            if it.window_chunks > 0:
                begin = max(begin, end - chunks_needed(it, local_tokens + tokens))
            for i in range(begin, end):
                element = self.table.find(self.users.part(user, group).hashes[i])
                if self.table.holds(element) and self.table.chunks[element].loads > 0:
                    return True
        return False

    # ---- loads

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        cdef int64_t tokens = self._matched_tokens + found.tokens
        cdef int32_t user = self.users.get(row), group, i, size, end, chunks_end
        cdef int32_t copy = self.copying.plan(LOAD, user, slot if found.comes_later else -1, 0)
        cdef const Table* table
        self._blocks.size = 0
        for group in range(self._num_groups):
            table, size = self._tables.table(slot, group), self._groups[group].block_size
            for i in range(table.size):
                if table.blocks[i] > 0:
                    self._tables.announce(table.blocks[i])
            end = <int32_t>((tokens + size - 1) // size)
            chunks_end = <int32_t>((tokens + self._groups[group].chunk_tokens - 1) // self._groups[group].chunk_tokens)
            i = self._first_to_read(group, slot, end, not found.comes_later)
            if i < end:
                self._read(user, group, i // self._chunk_blocks, chunks_end, copy)
            for i in range(i, end):
                add_row(&self._blocks, table.blocks[i])
            self.users.part(user, group).offered = chunks_end
        self.users.users[user].loaded_tokens = <int32_t>found.tokens
        self.copying.copies[copy].num_blocks = self._blocks.size
        self._link_copy(user, copy)
        if self._log is not None:
            self._note("loads", copy)
        return NEVER_NS if found.comes_later else now_ns

    cdef int32_t _first_to_read(self, int32_t group, int32_t slot, int32_t end, bint are_listed) noexcept nogil:
        """Return the first block of a table that is to be loaded; `end`: there is none.

        are_listed : blocks to be loaded are in the prefix cache, as those that the step loads.
        """
        cdef const Table* table = self._tables.table(slot, group)
        cdef int32_t size = self._groups[group].block_size
        cdef int32_t i = <int32_t>((self._matched_tokens + size - 1) // size)
        while i < end and (table.blocks[i] <= 0 or (not are_listed and self._tables.is_listed(table.blocks[i]))):
            i += 1
        return i

    # ---- the calls of a step

    cdef int64_t _tokens_to_store(self, int32_t row, int64_t tokens) noexcept nogil:
        return min(tokens, <int64_t>self._content.prompt_tokens(row)) if self._prompt_only else tokens

    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int32_t user = self.users.get(row)
        self.users.users[user].limit = self._tokens_to_store(row, min(computed, text))
        self.users.users[user].junction = self._tables.junction(slot)
        self.users.take_blocks(user, slot)
        return add_row(&self._scheduled, user)

    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil:
        cdef int32_t user = self.users.find(row), prompt = self._content.prompt_tokens(row), group
        if not self._prompt_only or user < 0:
            return False
        for group in range(self._num_groups):
            if self.users.part(user, group).offered < prompt // self._groups[group].chunk_tokens:
                return False
        return True

    cdef int preempted(self, int32_t row) except -1 nogil:
        cdef int32_t user = self.users.find(row)
        if user >= 0:
            self._flush_user(user)
            self.users.forget_blocks(user)
        self._tables.listed.drop(row)
        return 0

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int32_t user = self.users.find(row), prompt = self._content.prompt_tokens(row)
        cdef User* it
        self._num_left += 1
        self._tables.listed.drop(row)
        if user < 0:
            return 0
        it = &self.users.users[user]
        it.limit = self._tokens_to_store(row, min(max(<int64_t>prompt, text - 1), computed))
        self.users.leave(user)
        it.offers = self._may_offer(user)
        self._num_offering += it.offers
        self._fence_all(user)
        return add_row(&self._leaving, user)

    cdef int gives_up(self, int32_t row) except -1 nogil:
        self._tables.listed.drop(row)
        return OffloadingTier.gives_up(self, row)

    cdef int plan(self) except -1 nogil:
        cdef int32_t i
        self._step_used = 0
        self._flush_touched()
        self._store_states()
        for i in range(self._scheduled.size):
            self._offer(self._scheduled.rows[i], False)
        for i in range(self._leaving.size):
            if self.users.users[self._leaving.rows[i]].offers:
                self._offer(self._leaving.rows[i], True)
        self._close_leaving()
        self._scheduled.size = self._num_offering = 0
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
        cdef const ListedState* states = self._tables.listed.states
        cdef int32_t group, i, user
        for group in range(self._num_groups if self._tables.listed.count > 0 else 0):
            for i in range(self._tables.listed.count):
                if states[i].group == group:
                    user = self.users.get(states[i].row)
                    if self.users.users[user].states_turn <= self._tables.turn:
                        self.users.users[user].states_turn = self._tables.turn + 1
                        self._store_states_of(user, group)
        self._tables.listed.count = 0
        return 0

    cdef int _store_states_of(self, int32_t user, int32_t first) except -1 nogil:
        """Store the states of one request, of which the first is in group `first`."""
        cdef const ListedState* states = self._tables.listed.states
        cdef int32_t row = self.users.users[user].row, group, i, copy, size
        for group in range(first, self._num_groups):
            size = self._groups[group].chunk_tokens
            for i in range(self._tables.listed.count):
                if (states[i].row != row or states[i].group != group or states[i].end % size
                        or states[i].end > self._tokens_to_store(row, states[i].end)):
                    continue
                self.users.name_chunks(user, group, size, <int32_t>(states[i].end // size))
                self._begin_offer()
                self._sort_out(user, group, <int32_t>(states[i].end // size) - 1, <int32_t>(states[i].end // size))
                if self._fits(user) and self._new.size > 0:
                    self._blocks.size = 0
                    add_row(&self._blocks, states[i].block)
                    copy = self._write(user, 1)
                    self._tables.fences.put_up(states[i].block, name_of(&self.copying.copies[copy], copy), 0)
        return 0

    cdef int32_t _limit(self, int32_t user, int32_t group) noexcept nogil:
        """Return how many chunks of a group may be stored, which have blocks to the end.

        As long as drafts of an output may be rejected, a drafter may write its KV of the last chunk again.
        """
        cdef const LayerChunks* it = &self._groups[group]
        cdef const User* of_request = &self.users.users[user]
        cdef int64_t end = of_request.limit // it.chunk_tokens
        if it.drops and not of_request.has_left and of_request.limit > self._content.prompt_tokens(of_request.row):
            end = max(end - 1, <int64_t>0)
        return <int32_t>min(end, <int64_t>self.users.part(user, group).size // self._chunk_blocks)

    cdef int _offer(self, int32_t user, bint has_left) except -1 nogil:
        """Plan to write new chunks among those not offered yet; if there is no room, offer them again later."""
        cdef int32_t group, i, k, block, first
        cdef const Part* part
        self._begin_offer()
        self._blocks.size = 0
        for group in range(self._num_groups):
            if not self._groups[group].is_state:
                self._sort_out_kept(user, group, has_left)
        if not self._fits(user):
            return 0
        for i in range(self._new.size):
            part, first = self._part(user, self._new.rows[i]), chunk_of(self._new.rows[i]) * self._chunk_blocks
            for k in range(first, first + self._chunk_blocks):
                block = self.users.block(part, k)
                if block != 0:
                    add_row(&self._blocks, block)
        if self._new.size > 0:
            self._fence_new(user, self._write(user, self._blocks.size), has_left)
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
            if end > self.users.part(user, group).offered or self._looks_back(it, end, prompt):
                return True
        return False

    cdef bint _looks_back(self, const LayerChunks* it, int32_t end, int32_t prompt) noexcept nogil:
        """Say whether a text that has ended keeps further chunks: its last segment does not end with the prompt."""
        return self._is_dense and it.align_blocks > 0 and not it.drops and end != prompt // it.chunk_tokens

    cdef int _sort_out_kept(self, int32_t user, int32_t group, bint has_left) except -1 nogil:
        """Sort out the chunks of a group that are offered, as `_sort_out`.

        Without a retention interval a text that has ended has a last segment, and its end is kept, too.
        """
        cdef const LayerChunks* it = &self._groups[group]
        cdef Part* part = self.users.part(user, group)
        cdef int32_t end = self._limit(user, group), begin = part.offered, count = self._chunk_blocks, i
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
            if self._lacks_block(it, &tails, part, i):
                continue
            if again and i < part.offered and is_kept(it, &before, i):
                continue
            if is_kept(it, &tails, i):
                self._sort_out(user, group, i, i + 1)
        return 0

    cdef bint _lacks_block(self, const LayerChunks* it, const Tails* tails, const Part* part,
                           int32_t chunk) noexcept nogil:
        """Say whether a chunk is not offered because blocks of it were reused."""
        cdef int32_t first = chunk * self._chunk_blocks, end = first + self._chunk_blocks, i
        if self.users.block(part, end - 1) == 0:
            return True
        for i in range(first, end - 1 if self._needs_all_blocks else first):
            if self.users.block(part, i) == 0 and is_block_kept(it, tails, i):
                return True
        return False

    cdef int64_t _order_of(self, int32_t place) noexcept nogil:
        cdef int32_t group = place >> CHUNK_BITS
        return (chunk_of(place) + <int64_t>1) * self._groups[group].chunk_tokens * MOST_GROUPS - group

    # ---- fences on blocks that are read though they are free

    cdef int _fence_new(self, int32_t user, int32_t copy, bint has_left) except -1 nogil:
        """Put fences on the blocks of `_new` that may be reused before they are read."""
        cdef int64_t name = name_of(&self.copying.copies[copy], copy)
        cdef const Part* part
        cdef int32_t i, k, block, first
        cdef bint is_full
        for i in range(self._new.size):
            is_full = self._groups[self._new.rows[i] >> CHUNK_BITS].window_chunks == 0
            if is_full and not has_left:
                continue
            part, first = self._part(user, self._new.rows[i]), chunk_of(self._new.rows[i]) * self._chunk_blocks
            for k in range(first, first + self._chunk_blocks):
                block = self.users.block(part, k)
                if block == 0:
                    continue
                self._tables.fences.put_up(block, name, k)
                if is_full and self._tables.was_given_after(self._tables.turn - 1, block):
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
                    if self._groups[group].window_chunks > 0 or place >= part.num_hashed or (
                            part.hashes[place] != self.table.chunks[it.chunks[i]].hash):
                        continue
                    for k in range(place * self._chunk_blocks, min((place + 1) * self._chunk_blocks, part.size)):
                        self._tables.fences.put_up(part.blocks[k], name_of(it, copy), k)
            copy = it.sibling
        return 0

    # ---- requests that leave, and copies that end

    cdef int _close(self, int32_t user) except -1 nogil:
        cdef Part* part
        cdef int32_t group, first, element, i
        cdef int64_t end, first_end
        self._closing.size = self._closing_uses.size = 0
        memset(self._cursors, 0, self._num_groups * sizeof(int32_t))
        while True:
            first, first_end = -1, 0
            for group in range(self._num_groups):       # the next by its end, then by its group
                part = self.users.part(user, group)
                while self._cursors[group] < part.num_hashed and part.uses[self._cursors[group]] == 0:
                    self._cursors[group] += 1
                end = (<int64_t>self._cursors[group] + 1) * self._groups[group].chunk_tokens
                if self._cursors[group] < part.num_hashed and (first < 0 or end < first_end):
                    first, first_end = group, end
            if first < 0:
                break
            part, i = self.users.part(user, first), self._cursors[first]
            self._cursors[first] += 1
            element = self.table.find(part.hashes[i])
            if self.table.holds(element):
                add_row(&self._closing, element)
                add_row(&self._closing_uses, part.uses[i])
        for i in range(self._closing.size - 1, -1, -1):
            self.policy.closed(self._closing.rows[i], self._closing_uses.rows[i])
        return 0

    cdef void _forget(self, int32_t user) noexcept nogil:
        self.users.drop(user)

    cdef bint is_quiet(self) noexcept nogil:
        return OffloadingTier.is_quiet(self) and self._num_offering == 0

    cdef bint surely_decides(self, int32_t row) noexcept nogil:
        return False

    cdef bint may_lag(self) noexcept nogil:
        return False

    cdef void _count_done(self, int32_t copy) noexcept nogil:
        cdef const Copy* it = &self.copying.copies[copy]
        cdef const User* user = &self.users.users[it.user]
        self._count(copy, user.row, user.loaded_tokens if it.direction == LOAD else self._stored_tokens(copy))
        self._tables.fences.take_down(name_of(it, copy))

    cdef int64_t _stored_tokens(self, int32_t copy) noexcept nogil:
        """Return the tokens that a copy stored, as counted by the group that is searched first."""
        cdef const Copy* it = &self.copying.copies[copy]
        cdef const Part* part = self.users.part(it.user, self._order[0])
        cdef int32_t count = 0, i, place
        for i in range(it.num_chunks):
            place = self.table.chunks[it.chunks[i]].begin
            count += place < part.num_hashed and part.hashes[place] == self.table.chunks[it.chunks[i]].hash
        return <int64_t>count * self._groups[self._order[0]].chunk_tokens

    cdef int fail(self) except -1 nogil:
        self._scheduled.size = self._num_offering = self._tables.listed.count = 0
        return OffloadingTier.fail(self)

    def holdings(self):
        """See KVTier; the first group of full attention, as for `KVCache.follow`.

        None: there is no such group, or blocks are of different sizes.
        """
        if not self._tables.layers.is_even:
            return None
        return OffloadingTier.holdings(self)._replace(chain_tokens=self._tables.grain())

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
