"""Chunks of a replica's KV kept in host memory: vLLM's OffloadingConnector.

When a batch is formed, the chunks of text that it fills are offered, and written one step later; an admitted request
loads the chunks that the host has behind the tokens found in the KV cache, and waits for the load with its blocks. The
blocks of a request that has ended are free at once, though they may still be read: a step that reuses one waits.
Chunks are kept for each group of layers; here all layers are one group of full attention, `group_offloading` adds
windows and states. Source: the behaviour of vLLM 0.32.0, vllm/v1/kv_offload/cpu/manager.py and
vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py; of 0.33.0 where settings say so.
"""
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row, has_row
from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content
from simulator.kv.fences cimport Touched
from simulator.kv.tier cimport UNDECIDED
from simulator.kv.tiers.chunk_table cimport REMEMBERED, WRITING, Chunk
from simulator.kv.tiers.copies cimport LOAD, STORE, Copy
from simulator.kv.tiers.eviction cimport INSERTED, MISSED, REUSED, SEEN
from simulator.kv.tiers.lane cimport Lane
from simulator.kv.tiers.ranking cimport close_runs, cut_out, mark_of, rank_uses
from simulator.kv.tiers.users cimport User

from simulator.kv.holdings import Holdings
from simulator.kv.tiers.level import Level
from simulator.kv.tiers.settings import Offloading


cdef class OffloadingTier(HostTier):
    """Host memory of one replica, and the levels below it; see HostTier."""

    def __init__(self, settings: Offloading, Lane store, Lane load, Lane step=None):
        HostTier.__init__(self, settings, store, load, step)
        self.names_blocks = not settings.offload_prompt_only    # the end of an output leaves without a hash
        self._chunk_blocks, self._drops_last = settings.blocks_per_chunk, settings.drops_last_chunk
        self._counts = ReuseCounts() if settings.store_threshold > 1 else None
        self.copying.loads_at_once = self._in_step = self.stays = settings.loads_in_step
        self._step_tokens = settings.step_load_tokens
        self._overlaps, self._waits, self._confirms = settings.overlaps, settings.waits, settings.confirms
        self._promoted_tokens, self._offers_again = settings.promoted_tokens, settings.offers_again
        self._levels = [Level(level) for level in settings.levels if level.scope == "replica"]

    def share(self, stores):
        """See KVTier."""
        own = iter(self._levels)
        self._levels = [
            next(own) if level.scope == "replica" else stores.get(level.name) or Level(level)
            for level in self._settings.levels]
        stores.update((level.settings.name, level) for level in self._levels if level.settings.scope == "cluster")

    def attach(self, KVCache kv, Content content, use=None, with_tables=False):
        """See KVTier."""
        HostTier.attach(self, kv, content, use, with_tables)
        self._ranking = self.policy if isinstance(self.policy, LruByRequest) else None
        self._caches, self.table.notes_one_load = kv.caches, self._step_tokens > 0
        self._chunk_tokens = <int64_t>self._chunk_blocks * kv.block_size
        self.chain = Chain(self._levels, self.table) if self._levels else None
        self.looks_below = self.chain is not None
        self._lists_all = with_tables or self._counts is not None or self.chain is not None or not (
            self.policy.takes_runs)
        self._users = self._new_users()

    def _new_users(self):
        return Users(self._content, <int32_t>self._chunk_tokens, self._lists_all)

    def keep_log(self):
        """See KVTier."""
        HostTier.keep_log(self)
        self._left_blocks = {}

    def share_content(self, content):
        """See KVCache."""
        self._content = content
        self._users.share_content(content)

    def __dealloc__(self):
        free(self._user_in)
        free(self._leaving.rows)
        free(self._new.rows)
        free(self._new_runs.rows)
        free(self._lower.rows)

    # ---- hits and loads

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        cdef int64_t text = self._content.text_tokens(row), tokens
        cdef int32_t user = self._users.find(row), begin = <int32_t>(local_tokens // self._chunk_tokens)
        cdef bint is_late = False, is_read = False
        found.tokens, found.comes_later = 0, not self._in_step
        self._matched_tokens = local_tokens
        if user >= 0:
            self._users.users[user].loaded_tokens = 0
            if self._offers_again:
                self._users.part(user, 0).offered = 0
            if self._users.users[user].first_copy >= 0 and self._waits:
                found.tokens = UNDECIDED
                return 0
        if text // self._chunk_tokens * self._chunk_tokens - local_tokens < self._chunk_tokens:
            return 0
        if user < 0:
            if begin >= self._users.listed_chunks(row):
                return 0                # private text that was never offered
            user = self._users.get(row)
        if self.chain is None:
            tokens = self._hit(user, text, local_tokens, &is_late, &is_read)
        else:
            tokens = self._hit_with_levels(user, text, local_tokens, &is_late, &is_read)
        if is_late:
            found.tokens = UNDECIDED
        elif self._in_step:
            found.tokens = max(min(tokens, text - 1 - local_tokens), <int64_t>0)
        elif tokens >= self._chunk_tokens:
            found.tokens = UNDECIDED if is_read and self._caches and self._waits else tokens
            self._load_in_step(text, local_tokens, found)
        return 0

    cdef void _load_in_step(self, int64_t text, int64_t local_tokens, External* found) noexcept nogil:
        if 0 < found.tokens <= self._step_tokens - self._step_used and local_tokens + found.tokens < text:
            found.comes_later = False
            self._step_used += found.tokens

    cdef int64_t _hit(self, int32_t user, int64_t text, int64_t local_tokens, bint* is_late,
                      bint* is_read) except -1 nogil:
        cdef int32_t begin = <int32_t>(local_tokens // self._chunk_tokens), i = begin, element = 0
        cdef int32_t end = <int32_t>(text // self._chunk_tokens)
        cdef int32_t listed_end = min(end, self._users.users[user].num_listed)
        cdef const Part* part = self._users.part(user, 0)
        cdef const Chunk* it
        cdef bint was_read = False
        self._users.hash(user, listed_end)
        while i < end:
            if i < listed_end:
                element = self.table.find_behind(element, part.hashes[i])
            else:
                element = self.table.run_at(self._users.users[user].row, i)
            it = &self.table.chunks[element]
            if not self.table.holds(element):
                if not self._is_below(user, i):
                    break
                i += 1
                continue
            if it.references == WRITING and it.loads == 0 and not self._waits and not self._sees_below:
                break
            self._keep_for_hit(element)
            is_late[0] = is_late[0] or it.references == WRITING
            was_read = is_read[0]
            is_read[0] = is_read[0] or it.loads > 0
            i = min(it.end, end) if i >= listed_end else i + 1
        if self._drops_last:
            is_read[0], i = was_read, max(i - 1, begin)
        return max(i * self._chunk_tokens - local_tokens, <int64_t>0) if i > begin else 0

    # ---- levels below

    cdef void _keep_for_hit(self, int32_t element) noexcept nogil:
        if self._sees_below and self.table.chunks[element].guard != self._guard:
            self.table.chunks[element].guard = self._guard
            self._num_guarded += self.table.is_idle(element)

    cdef bint _is_below(self, int32_t user, int32_t place) except -1 nogil:
        cdef int32_t lower = 0
        if not self._sees_below or self.chain.find(self._part(user, place).hashes[chunk_of(place)], &lower) < 0:
            return False
        if not has_row(&self._lower, place):
            add_row(&self._lower, place)
        return True

    cdef int64_t _hit_with_levels(self, int32_t user, int64_t text, int64_t local_tokens, bint* is_late,
                                  bint* is_read) except -1 nogil:
        cdef int64_t tokens
        self._lower.size = 0
        self._guard += 1
        self._num_guarded = 0
        self._sees_below = True
        tokens = self._hit(user, text, local_tokens, is_late, is_read)
        self._sees_below = False
        if (self._lower.size * self._chunk_tokens >= self._promoted_tokens and self._lower.size > 0
                and (tokens >= self._chunk_tokens or self.takes_groups) and self._promote(user)):
            is_late[0] = tokens > 0
            return tokens
        is_late[0] = is_read[0] = False
        return self._hit(user, text, local_tokens, is_late, is_read)

    cdef bint _promote(self, int32_t user) except -1 nogil:
        """Plan to read the chunks of `_lower` into the host; False: it has no room."""
        cdef int64_t lacking = self._lower.size - (self.table.capacity - self.table.size())
        cdef int32_t newcomers = self.policy.newcomers(), place, lower = 0, level, element, i
        cdef uint64_t hash
        if self._ranking is not None:
            self._mark(user)
        if lacking > 0:
            if lacking > self.table.num_idle - self._num_guarded:
                self.chain.refusals += 1
                return False
            self.evictions += lacking
            self.policy.evict(lacking, self._guard)
        self.table.prepare(self._lower.size)
        for i in range(self._lower.size):
            place = self._lower.rows[i]
            hash = self._part(user, place).hashes[chunk_of(place)]
            level = self.chain.find(hash, &lower)
            element = self.table.add(hash, chunk_of(place), newcomers)
            if self._ranking is not None:
                self._ranking.added(self._users.users[user].mark, element, self._order_of(place))
            self.chain.read(level, lower, element)
        self.chain.end_request()
        return True

    # ---- loads

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        cdef int64_t tokens = self._matched_tokens + found.tokens
        cdef int32_t block_size = self.kv.block_size, user = self._users.get(row)
        cdef int32_t end = <int32_t>((tokens + self._chunk_tokens - 1) // self._chunk_tokens)
        cdef int32_t copy = self.copying.plan(
            LOAD, user, slot if found.comes_later else -1,
            (tokens + block_size - 1) // block_size - self._matched_tokens // block_size)
        self._read(user, 0, <int32_t>(self._matched_tokens // self._chunk_tokens), end, copy)
        self._users.part(user, 0).offered = end
        self._users.users[user].loaded_tokens = <int32_t>found.tokens
        self._link_copy(user, copy)
        if self._log is not None:
            self._note("loads", copy)
        return NEVER_NS if found.comes_later else now_ns

    cdef int _read(self, int32_t user, int32_t group, int32_t begin, int32_t end, int32_t copy) except -1 nogil:
        """Read chunks begin .. end - 1 of a group."""
        cdef const User* it = &self._users.users[user]
        cdef Part* part = self._users.part(user, group)
        cdef int32_t element, i = begin, mark = self._mark(user) if self._ranking is not None else 0
        while i < end:
            if i < it.num_listed:
                element = part.elements[i] = self.table.find(part.hashes[i])
                part.uses[i] |= SEEN if part.uses[i] & INSERTED else SEEN | REUSED
            else:
                element = cut_out(self.table, self._ranking, it.row, i, end)
                if self._ranking is not None:
                    self._ranking.used(mark, element, i)
            self.table.begin_load(element, self.copying.copies[copy].slot < 0)
            self._hit_chunks += self.table.length(element)
            self.copying.add_chunk(copy, element)
            i = self.table.chunks[element].end if i >= it.num_listed else i + 1
        return self._rank(user, group, begin, min(end, it.num_listed)) if self._ranking is not None else 0

    cdef int32_t _mark(self, int32_t user) except -1 nogil:
        return mark_of(self._ranking, &self._users.users[user])

    cdef int _rank(self, int32_t user, int32_t group, int32_t begin, int32_t end) except -1 nogil:
        cdef int64_t first = self._order_of(place_of(group, 0))
        return rank_uses(self._ranking, &self._users.users[user], self._users.part(user, group), begin, end, first,
                         self._order_of(place_of(group, 1)) - first)

    cdef int64_t _order_of(self, int32_t place) noexcept nogil:
        return chunk_of(place)

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        cdef int32_t user = self._users.find(row)
        return self._users.users[user].loaded_tokens if user >= 0 else 0

    # ---- chunks offered by requests

    cdef inline int32_t _user_of(self, int32_t slot, int32_t row) except -2 nogil:
        """Return the user of a sequence; -1: it has none yet."""
        cdef int32_t user = -1, before = self._room_slots, i
        if slot >= before:
            resize(&self._user_in, (2 * slot + 16) * sizeof(int32_t))
            self._room_slots = 2 * slot + 16
            for i in range(before, self._room_slots):
                self._user_in[i] = -1
        user = self._user_in[slot]
        if user < 0 or self._users.users[user].has_left or self._users.users[user].row != row:
            user = self._user_in[slot] = self._users.find(row)
        return user

    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int64_t tokens = min(computed, text), prompt = self._content.prompt_tokens(row)
        cdef int32_t user, end
        if self._prompt_only:
            tokens = min(tokens, prompt)
        end = <int32_t>(tokens // self._chunk_tokens) - (self._drops_last and tokens > prompt)
        if end <= 0:
            return 0
        user = self._user_of(slot, row)
        if user < 0:
            user = self._user_in[slot] = self._users.get(row)
        if self._confirms:
            end = <int32_t>(self._users.users[user].confirmed // self._chunk_tokens)
            self._users.users[user].confirmed = <int32_t>tokens
        return self._offer_all(user, end) if end > self._users.part(user, 0).offered else 0

    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil:
        cdef int32_t end = <int32_t>(self._content.prompt_tokens(row) // self._chunk_tokens)
        cdef int32_t user = self._user_in[slot] if slot < self._room_slots else -1
        if not self._prompt_only:
            return False
        if end == 0:
            return True
        return user >= 0 and self._users.users[user].row == row and self._users.part(user, 0).offered >= end

    cdef int _offer_all(self, int32_t user, int32_t end) except -1 nogil:
        """Plan to write new chunks among those not offered yet; if there is no room, offer them again later."""
        cdef const User* it = &self._users.users[user]
        cdef Part* part = self._users.part(user, 0)
        cdef int32_t begin = part.offered, listed_end = min(end, it.num_listed)
        self._begin_offer()
        if begin < listed_end:
            self._users.hash(user, listed_end)
            self._sort_out(user, 0, begin, listed_end)
        if listed_end < end:
            self._sort_out_runs(user, max(begin, listed_end), end)
        if not self._fits(user):
            return 0
        if self._new.size + self._num_in_runs > 0:
            self._write(user, (self._new.size + self._num_in_runs) * self._chunk_blocks)
        part.offered = end
        return 0

    cdef inline void _begin_offer(self) noexcept nogil:
        self._guard += 1
        self._num_in_runs = self._num_guarded = 0
        self._new.size = self._new_runs.size = 0

    cdef inline bint _fits(self, int32_t user) except -1 nogil:
        """Note the chunks that were missed, and make room for new ones."""
        cdef Part* part
        cdef int32_t i, chunk
        for i in range(self._new.size - 1, -1, -1):
            part, chunk = self._part(user, self._new.rows[i]), chunk_of(self._new.rows[i])
            if not part.uses[chunk] & MISSED:
                part.uses[chunk] |= MISSED
                self.policy.missed(self.table.find(part.hashes[chunk]))
        return self._new.size + self._num_in_runs == 0 or self._make_room(self._new.size + self._num_in_runs)

    cdef int _sort_out(self, int32_t user, int32_t group, int32_t begin, int32_t end) except -1 nogil:
        cdef Part* part = self._users.part(user, group)
        cdef const uint64_t* hashes = part.hashes
        cdef uint8_t* uses = part.uses
        cdef Chunk* chunks = self.table.chunks
        cdef Chunk* chunk
        cdef Chunk* following
        cdef int32_t* elements = part.elements
        cdef int32_t i = begin - 1, element = 0
        cdef int64_t idle = 0, guard = self._guard
        cdef bint counts = self._counts is not None, is_often = True
        while i + 1 < end:
            i += 1
            if counts:
                is_often = self._counts.count(hashes[i]) >= self._threshold
            element = elements[i] = self.table.find_behind(element, hashes[i])
            chunk = &chunks[element]
            if element == 0 or chunk.listed >= REMEMBERED:
                if is_often:
                    add_row(&self._new, place_of(group, i))
                    uses[i] |= SEEN
            elif chunk.references != WRITING:
                chunk.guard = guard
                idle += chunk.references == 0
                uses[i] |= SEEN if uses[i] & INSERTED else SEEN | REUSED
                while not counts and i + 1 < end and chunk.sibling > 0:     # a short loop for the chunks that follow
                    following = &chunks[chunk.sibling]
                    if following.hash != hashes[i + 1] or following.listed >= REMEMBERED or (
                            following.references == WRITING):
                        break
                    i += 1
                    element = elements[i] = chunk.sibling
                    chunk = following
                    chunk.guard = guard
                    idle += chunk.references == 0
                    uses[i] |= SEEN if uses[i] & INSERTED else SEEN | REUSED
        self._num_guarded += idle
        return self._rank(user, group, begin, end) if self._ranking is not None else 0

    cdef inline int _sort_out_runs(self, int32_t user, int32_t begin, int32_t end) except -1 nogil:
        """The same for private text."""
        cdef int32_t row = self._users.users[user].row, element, following
        while begin < end:
            following, element = end, self.table.first_run(row)
            while element != 0 and following > begin:       # the next run from `begin` on
                if self.table.chunks[element].end > begin:
                    following = min(following, max(self.table.chunks[element].begin, begin))
                element = self.table.chunks[element].sibling
            if following > begin:
                add_row(&self._new_runs, begin)
                add_row(&self._new_runs, following)
                if self._ranking is not None:
                    self._mark(user)
                self._num_in_runs += following - begin
            elif self.table.chunks[self.table.run_at(row, begin)].references == WRITING:
                following = self.table.chunks[self.table.run_at(row, begin)].end
            else:
                element = cut_out(self.table, self._ranking, row, begin, end)
                following = self.table.chunks[element].end
                if self._ranking is not None:
                    self._ranking.used(self._mark(user), element, begin)
                self.table.chunks[element].guard = self._guard
                self._num_guarded += self.table.length(element) if self.table.is_idle(element) else 0
            begin = following
        return 0

    cdef inline int32_t _write(self, int32_t user, int64_t num_blocks) except -1 nogil:
        cdef int32_t copy = self.copying.plan(STORE, user, -1, num_blocks), i, chunk
        cdef int32_t newcomers = self.policy.newcomers(), mark = self._users.users[user].mark
        cdef Part* part
        self.table.prepare(self._new.size + self._new_runs.size // 2)
        for i in range(self._new.size):
            part, chunk = self._part(user, self._new.rows[i]), chunk_of(self._new.rows[i])
            part.uses[chunk] |= INSERTED
            part.elements[chunk] = self.table.add(part.hashes[chunk], chunk, newcomers)
            if self._ranking is not None:
                self._ranking.added(mark, part.elements[chunk], self._order_of(self._new.rows[i]))
            self.copying.add_chunk(copy, part.elements[chunk])
        for i in range(0, self._new_runs.size, 2):
            chunk = self.table.add_run(
                self._users.users[user].row, self._new_runs.rows[i], self._new_runs.rows[i + 1], newcomers)
            if self._ranking is not None:
                self._ranking.added(mark, chunk, self._new_runs.rows[i])
            self.copying.add_chunk(copy, chunk)
        self._link_copy(user, copy)
        if self._log is not None:
            self._note("stores", copy)
        return copy

    # ---- requests that leave

    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil:
        cdef int64_t prompt = self._content.prompt_tokens(row), tokens = min(max(prompt, text - 1), computed)
        cdef int32_t user = self._user_of(slot, row), end, offered
        cdef User* it
        self._num_left += 1
        end = <int32_t>((min(tokens, prompt) if self._prompt_only else tokens) // self._chunk_tokens)
        if user < 0:
            if end == 0:
                return 0
            user = self._users.get(row)
        it, offered = &self._users.users[user], self._users.part(user, 0).offered
        it.last_chunk = max(end, offered)
        if it.first_copy >= 0 or it.last_chunk > offered:
            self._fence(user, slot)
        self._users.leave(user)
        return add_row(&self._leaving, user)

    cdef int _fence(self, int32_t user, int32_t slot) except -1 nogil:
        """Put fences on the blocks of a leaving request that copies read, or will read."""
        cdef const User* it = &self._users.users[user]
        cdef int32_t copy = it.first_copy, begin = self._users.part(user, 0).offered, end = it.last_chunk, i
        cdef const Copy* read
        while copy >= 0:
            read = &self.copying.copies[copy]
            for i in range(read.num_chunks):
                begin = min(begin, self.table.chunks[read.chunks[i]].begin)
                end = max(end, self.table.chunks[read.chunks[i]].end)
            copy = read.sibling
        if self._log is not None:
            self._note_blocks(user, slot)
        return self.kv.fence(slot, begin * self._chunk_blocks, end * self._chunk_blocks, self._users.name(user))

    cdef int gives_up(self, int32_t row) except -1 nogil:
        cdef int32_t user = self._users.find(row)
        self._num_left += 1
        if user < 0:
            return 0
        self._users.users[user].last_chunk = self._users.part(user, 0).offered
        self._users.leave(user)
        return add_row(&self._leaving, user)

    cdef int preempted(self, int32_t row) except -1 nogil:
        cdef int32_t user = self._users.find(row)
        if user >= 0:
            self._users.users[user].confirmed = 0
            self._flush_user(user)
        return 0

    cdef int _flush_user(self, int32_t user) except -1 nogil:
        """Flush all copies of a request."""
        cdef int32_t copy = self._users.users[user].first_copy
        while copy >= 0:
            self.copying.flush(copy)
            copy = self.copying.copies[copy].sibling
        return 0

    cdef int plan(self) except -1 nogil:
        cdef int32_t i, user
        self._step_used = 0
        for i in range(self._leaving.size):
            user = self._leaving.rows[i]
            if self._users.users[user].last_chunk > self._users.part(user, 0).offered:
                self._offer_all(user, self._users.users[user].last_chunk)
        if self.kv.fences.num_touched > 0:
            self._flush_touched()
        return self._close_leaving()

    cdef inline int _close_leaving(self) except -1 nogil:
        """Close all requests that have left since the last step."""
        cdef int32_t i, user
        self._had_leaving = self._num_left > 0
        self._num_left = 0
        for i in range(self._leaving.size):
            user = self._leaving.rows[i]
            self._close(user)
            if self._users.users[user].mark > 0:
                self._ranking.close(self._users.users[user].mark)
                self._users.users[user].mark = 0
            self._users.users[user].is_closed = True
            if self._users.users[user].first_copy < 0:
                self._forget(user)
        self._leaving.size = 0
        return 0

    cdef int _flush_touched(self) except -1 nogil:
        """Flush stores of blocks that the step reuses."""
        cdef const Touched* it
        cdef const Copy* read
        cdef int32_t i, k, user, copy, chunk
        for i in range(self.kv.fences.num_touched):
            it = &self.kv.fences.touched[i]
            user = self._users.named(it.reader)
            chunk = it.place // self._chunk_blocks
            copy = self._users.users[user].first_copy if user >= 0 and self.kv.is_held(it.block) else -1
            while copy >= 0:
                read = &self.copying.copies[copy]
                for k in range(read.num_chunks):
                    if self.table.chunks[read.chunks[k]].begin <= chunk < self.table.chunks[read.chunks[k]].end:
                        self.copying.flush(copy)
                copy = read.sibling
        self.kv.fences.num_touched = 0
        return 0

    cdef int _close(self, int32_t user) except -1 nogil:
        cdef Part* part = self._users.part(user, 0)
        cdef const Chunk* chunks = self.table.chunks
        cdef const uint64_t* hashes = part.hashes
        cdef int32_t i
        if not self._lists_all:
            close_runs(self.policy, self._users.users[user].row, self._content)
        for i in range(part.num_hashed):
            if part.uses[i]:
                if chunks[part.elements[i]].hash != hashes[i]:
                    part.elements[i] = self.table.find(hashes[i])
                if chunks[part.elements[i]].listed >= REMEMBERED:
                    part.elements[i] = 0
        self.policy.closed_all(part.elements, part.uses, part.num_hashed)
        return 0

    cdef void _forget(self, int32_t user) noexcept nogil:
        self.kv.fences.take_down(self._users.name(user))
        self._users.drop(user)

    # ---- copies

    cdef inline void _link_copy(self, int32_t user, int32_t copy) noexcept nogil:
        self.copying.copies[copy].sibling = self._users.users[user].first_copy
        self._users.users[user].first_copy = copy

    cdef inline void _unlink_copy(self, int32_t user, int32_t copy) noexcept nogil:
        cdef int32_t* link = &self._users.users[user].first_copy
        while link[0] != copy:
            link = &self.copying.copies[link[0]].sibling
        link[0] = self.copying.copies[copy].sibling

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        return self.chain.begins(now_ns) if self.chain is not None else 0

    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil:
        cdef int64_t loads_ns = max(self.copying.loaded_ns - start_ns, <int64_t>0) if self._in_step else 0
        cdef double layers = self._overlaps
        if self._overlaps == 0 or loads_ns == 0:
            return loads_ns
        return round_half_up(<double>loads_ns / layers + <double>max(loads_ns - executes_ns, <int64_t>0) * (
            1.0 - 1.0 / layers))

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        if self.chain is not None:
            self.chain.begin_reads(now_ns)
        return self.copying.launch(now_ns, free_ns)

    cdef bint has_acted(self) noexcept nogil:
        return self.copying.has_acted or self._had_leaving

    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil:
        cdef int32_t copy = self.copying.take_done(num_done), slot, user, i
        cdef const Copy* it
        while copy >= 0:
            it = &self.copying.copies[copy]
            slot, user = it.slot, it.user
            self._count_done(copy)
            for i in range(it.num_chunks):
                if it.direction == STORE:
                    self.table.written(it.chunks[i])
                else:
                    self.table.end_load(it.chunks[i])
            if self.policy.hears_of_copies:
                for i in range(it.num_chunks - 1, -1, -1):
                    if self.table.is_idle(it.chunks[i]):
                        self.policy.copied(it.chunks[i])
            if self.chain is not None and it.direction == STORE:
                for i in range(it.num_chunks):
                    self.chain.stored(it.chunks[i])
                self.chain.end_copy()
            self._unlink_copy(user, copy)
            self.copying.give_back(copy)
            if self._users.users[user].is_closed and self._users.users[user].first_copy < 0:
                self._forget(user)
            if slot >= 0:
                return slot
            copy = self.copying.take_done(num_done)
        return -1

    cdef void _count_done(self, int32_t copy) noexcept nogil:
        cdef const Copy* it = &self.copying.copies[copy]
        self._count(copy, self._users.users[it.user].row, it.num_blocks * self.kv.block_size)

    def holdings(self):
        """See KVTier."""
        own, shared = (tuple(level for level in self._levels if level.settings.scope == scope)
                       for scope in ("replica", "cluster"))
        return Holdings(self._chunk_tokens, self._chunk_tokens, (self.table,), own, shared)

    def rows(self):
        """See KVTier."""
        host, = HostTier.rows(self)
        if self.chain is None:
            return [host]
        host["refusals"] += self.chain.refusals
        return [host, *(level.row() for level in self._levels if level.settings.scope == "replica")]

    cdef int64_t next_end_ns(self) noexcept nogil:
        if self.chain is None:
            return self.copying.next_end_ns()
        return min(self.copying.next_end_ns(), self.chain.next_end_ns())

    cdef bint is_quiet(self) noexcept nogil:
        return self.copying.is_quiet() and self.kv.fences.size == 0 and (
            self.chain is None or self.chain.is_quiet())

    cdef bint surely_decides(self, int32_t row) noexcept nogil:
        cdef int32_t user, element
        if self.chain is not None:
            return False
        if self.copying.is_idle():
            return True
        user = self._users.find(row)
        if self.table.num_busy > 0 or (user >= 0 and self._users.users[user].first_copy >= 0):
            return False
        element = self.table.first_run(row)
        while element != 0 and self.table.chunks[element].references == 0:
            element = self.table.chunks[element].sibling
        return element == 0

    cdef bint may_lag(self) noexcept nogil:
        # No step finds a block that is read, no request waits for a load, and the table has no follower.
        return (self.chain is None and self.kv.fences.size == 0 and self.table.log is None
                and self._leaving.size == 0 and self.copying.num_loading == 0)

    cdef int fail(self) except -1 nogil:
        self.copying.cancel()
        self._leaving.size = self._num_left = 0
        self._users.clear()
        if self.chain is not None:
            self.chain.fail()
        with gil:
            self.table.clear()
            self.kv.fences.clear()
        return 0

    # ---- the debug face

    cdef int _note(self, str what, int32_t copy) except -1 nogil:
        """Note a planned copy: number, row, chunks, slots, blocks copied, and the block table if its request left."""
        cdef const Copy* it = &self.copying.copies[copy]
        cdef int32_t i
        with gil:
            chunks = [it.chunks[i] for i in range(it.num_chunks)]
            self._log[what].append((
                it.number, self._users.users[it.user].row, [self.table.chunks[i].begin for i in chunks],
                [self.table.chunks[i].slot for i in chunks], it.num_blocks,
                self._left_blocks.pop(self._users.name(it.user), None) if what == "stores" else None))
        return 0

    cdef int _note_blocks(self, int32_t user, int32_t slot) except -1 nogil:
        with gil:
            self._left_blocks[self._users.name(user)] = self.kv.block_table(slot)
        return 0

    def check(self):
        """Raise RuntimeError unless the table agrees with itself and with the copies."""
        HostTier.check(self)
        if self.chain is not None:
            self.chain.check()
