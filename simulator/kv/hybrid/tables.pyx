"""The block tables of groups of layers that share one pool: content, lookup and release."""
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.fences cimport Fences
from simulator.kv.hybrid.block_store cimport NAMELESS, NO_BLOCK, NOBODYS, CountedStore, NamedStore
from simulator.kv.hybrid.layer_kind cimport Run, own_hash
from simulator.kv.hybrid.listed_states cimport ListedState
from simulator.kv.prefix_cache cimport Block

from math import gcd

from simulator.kv.hybrid.kinds import HitRules, kinds_of
from simulator.kv.hybrid.mamba import AlignedState


cdef class GroupTables(KVCache):
    """Blocks of one replica, in a table per group of layers and sequence.

    num_blocks : as for KVCache. block_size : as `unit_of` returns it. plan : KVPlan, with the groups in `layer_groups`.
    in_flight_tokens : most tokens computed in iterations that are not over, which a window may hold besides itself.
    reserves_whole : a text is admitted only if it fits whole. hit_rules : HitRules of the engine.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, plan, int64_t in_flight_tokens, bint reserves_whole,
                  hit_rules=HitRules()):
        layers = self.layers = plan.layer_groups
        self.hits_end_inside = plan.enable_prefix_caching and layers.hits_end_inside
        self._hash_unit, self._counts_units = layers.hash_unit, len(layers.groups) > 1 and not layers.hits_are_fine
        self.hit_tokens = self._hash_unit if self.hits_end_inside else block_size
        kinds = kinds_of(layers, self.hit_tokens, in_flight_tokens, plan.max_model_len, hit_rules.cut)
        self._has_drafts = any((<LayerKind>kind).drafts > 0 for kind in kinds)
        self.is_hybrid, self.hashes_ahead = True, hit_rules.hashes_ahead
        self.tracks_identity, self.caches = plan.with_tables, plan.enable_prefix_caching and plan.with_identity
        self._content, self._max_model_len = plan.content, plan.max_model_len
        self._caching = plan.enable_prefix_caching and (plan.with_identity or self.hits_end_inside)
        self.finds_outputs = self._caching and plan.content.has_public_outputs
        self.chunk_alignment = layers.chunk_alignment
        self._take_checkpoints(layers, plan.enable_prefix_caching, hit_rules.cut)
        self._has_states = hit_rules.repeats_last_states and any(isinstance(kind, AlignedState) for kind in kinds)
        with_names = plan.with_tables or self.hits_end_inside or (hit_rules.cut and self.checkpoint > 0)
        self.store = NamedStore(num_blocks) if with_names else CountedStore()
        self._lists_tails = self.hits_end_inside or (self._caching and with_names and any(
            kind.is_full and (<LayerKind>kind).block_size > self._hash_unit for kind in kinds))
        full = [number for number, group in enumerate(layers.groups) if group.kind == "full_attention"]
        self._num_groups, self._full_decides = len(layers.groups), len(full) > 0
        grain = self.hit_tokens if self.hits_end_inside else self.grid
        self._search = Search(self.store.prefixes, plan.content, self._num_groups, grain, full[0] if full else 0,
                              num_blocks if with_names else INT32_MAX)
        self._search.ahead = self.hashes_ahead
        searched = sorted(kinds, key=lambda kind: not kind.is_full)
        self._owners = (kinds, searched)
        self._num_kinds = len(kinds)
        self._kinds = <void**>calloc(self._num_groups, sizeof(void*))
        self._searched = <void**>calloc(self._num_kinds, sizeof(void*))
        self._least = <int32_t*>calloc(self._num_groups, sizeof(int32_t))
        if self._kinds == NULL or self._searched == NULL or self._least == NULL:
            raise MemoryError()
        self._place_kinds(searched, with_names)
        self._bound_blocks(kinds if reserves_whole else kinds_of(layers, self.hit_tokens, 1, plan.max_model_len))

    def _place_kinds(self, searched, with_names):
        cdef int32_t i, number
        for i in range(self._num_kinds):
            self._searched[i] = <void*>searched[i]
            for number in (<LayerKind>searched[i]).numbers():
                self._kinds[number] = <void*>searched[i]
            (<LayerKind>searched[i]).is_counted = not with_names and not (<LayerKind>searched[i]).keeps_newest
            number = (<LayerKind>searched[i]).num_groups
            (<LayerKind>searched[i]).in_a_row = (<LayerKind>searched[i]).is_counted and (
                (<LayerKind>searched[i]).groups[number - 1] - (<LayerKind>searched[i]).groups[0] == number - 1)

    def _bound_blocks(self, kinds):
        for kind in kinds:
            for number in kind.numbers():
                self._least[number] = 1 if kind.keeps_newest else (<LayerKind>kind).most_blocks

    def _take_checkpoints(self, layers, enable_prefix_caching, cut):
        self.dropped_tokens = self.hit_tokens if cut else 0
        self.checkpoint = layers.checkpoint if enable_prefix_caching else 0
        self.grid, self._whole = gcd(*[group.block_size for group in layers.groups]), layers.unit
        self._at_ends_alone = layers.retention_interval == 0

    def __dealloc__(self):
        cdef int64_t i
        for i in range(<int64_t>self.num_slots * self._num_groups if self._tables != NULL else 0):
            free(self._tables[i].blocks)
        free(self._tables)
        free(self._holders)
        free(self._kinds)
        free(self._searched)
        free(self._least)
        free(self._new_hashes)
        free(self._new_states)
        free(self._copied)
        free(self._given_at)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = self._search.content = content

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots, slot
        cdef size_t width = self._num_groups * sizeof(Table)
        if num_slots <= before:
            return 0
        resize(&self._tables, num_slots * width)
        memset(<char*>self._tables + before * width, 0, (num_slots - before) * width)
        resize(&self._holders, num_slots * sizeof(Holder))
        for slot in range(before, num_slots):
            self._holders[slot].row = -1
        return KVCache.reserve_slots(self, num_slots)

    # ---- prefix cache

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        self._found_tokens = self._junction = self._free_hits = 0
        memset(self._search.sizes, 0, self._num_groups * sizeof(int32_t))
        if not self._caching or num_tokens <= 1:
            return 0
        self._search.begin(row, num_tokens - (self.dropped_tokens == 0))
        self._found_tokens = self._find(num_tokens - 1)
        if self._found_tokens > 0:
            self._free_hits = self._count_free_hits()
        return <int32_t>(self._found_tokens // self.hit_tokens)

    def put_fences(self):
        """See KVCache; such a tier uses blocks by name."""
        if not self.store.names_all:
            raise NotImplementedError("blocks of several groups of layers are read by name")
        self._given_at = <int64_t*>calloc(self.num_blocks + 1, sizeof(int64_t))
        if self._given_at == NULL:
            raise MemoryError()
        self.fences, self.listed = Fences(), ListedStates()

    cdef int _note_listed(self, int32_t slot, int32_t group, int32_t index, int64_t end) except -1 nogil:
        """Note a state of `end` tokens that entered the prefix cache, for a tier."""
        cdef int32_t row = self._holders[slot].row
        if self.lists_prompts and end > self._content.prompt_tokens(row):
            return 0
        return self.listed.add(ListedState(end, row, group, self.table(slot, group).blocks[index]))

    cdef int32_t _count_free_hits(self) noexcept nogil:
        """Return the blocks found that no sequence holds, without blocks that are not needed any more.

        A state that was found counts even if a later one is loaded from elsewhere, as in vLLM.
        """
        cdef const Block* blocks = self.store.prefixes.blocks
        cdef const int32_t* found
        cdef int32_t group, i, first, count = 0
        for group in range(self._num_groups):
            first = 0 if (<LayerKind>self._kinds[group]).keeps_newest else self._first_needed(group)
            found = self._search.blocks[group]
            for i in range(first, self._search.sizes[group]):
                count += found[i] != NO_BLOCK and blocks[found[i]].references == 0
        return count

    cdef int64_t _find(self, int64_t most) noexcept nogil:
        """Return the tokens of the longest hit that is one in all groups."""
        cdef int64_t found = most, shorter, longest = 0
        cdef uint64_t verified = 0          # bits of kinds that have left a block of a hit of this length
        cdef int32_t i, group
        cdef bint is_first = True
        if self._num_groups == 1:
            return (<LayerKind>self._searched[0]).find(self._search, most, (<LayerKind>self._searched[0]).drops)
        while True:
            shorter = found
            for i in range(self._num_kinds):
                if is_first or not (<LayerKind>self._searched[i]).is_full:
                    shorter = self._find_in(i, shorter, &verified)
                    longest = max(longest, shorter)
            if shorter >= found:
                break
            found = shorter
            if self._num_kinds == 2 and (<LayerKind>self._searched[0]).is_full and (
                    not (<LayerKind>self._searched[1]).is_full):
                break                   # as in vLLM
            is_first = False
        for group in range(self._num_groups):
            if (<LayerKind>self._kinds[group]).is_full:
                self._search.sizes[group] = blocks_for(found, (<LayerKind>self._kinds[group]).block_size)
        self._junction = longest if longest > found else 0
        return found

    cdef int64_t _find_in(self, int32_t number, int64_t most, uint64_t* verified) noexcept nogil:
        """Return the tokens of the longest hit of a kind; where it drops a block, one behind `most`, if found."""
        cdef uint64_t bit = <uint64_t>1 << (number & 63)
        cdef bint drop = (<LayerKind>self._searched[number]).drops and verified[0] & bit == 0
        cdef int64_t end = most, found
        if drop and not (<LayerKind>self._searched[number]).keeps_newest:
            end = min(most + (<LayerKind>self._searched[number]).block_size,
                      self._search.reach // self._search.grain * self._search.grain)
        found = (<LayerKind>self._searched[number]).find(self._search, end, drop)
        if drop:
            verified[0] |= bit
        elif found < most:
            verified[0] = 0
        return found

    cdef int32_t free_hits(self) noexcept nogil:
        return self._free_hits

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        return blocks_for(num_tokens, self.hit_tokens)

    cdef int32_t blank_blocks(self) noexcept nogil:
        return self.store.blank(self.free_blocks)

    cdef int64_t junction(self, int32_t slot) noexcept nogil:
        return self._junction if slot < 0 else self._holders[slot].junction

    cdef void begin_batch(self) noexcept nogil:
        self._num_states = 0

    cdef int end_batch(self) except -1 nogil:
        cdef int32_t group, i
        cdef int32_t[2] both
        for group in range(self._num_groups if self._num_copied > 0 else 0):
            for i in range(self._num_copied):
                if self._copied[i].group == group:
                    both[1], both[0] = self._copied[i].block, self._copied[i].copy      # in this order
                    self.free_blocks += self.store.release(both, 0, 2)
                    self.store.goes_on = True
                    if (<LayerKind>self._kinds[group]).frees_at >= 0:
                        self.num_shared -= self.store.num_left_alone
        self._num_copied, self.store.goes_on = 0, False
        return 0

    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        return _cache_until(self, slot, known_tokens // self.hit_tokens * self.hit_tokens, known_tokens)

    cdef int _chain(self, Holder* holder, int64_t begin, int64_t end) except -1 nogil:
        """Fill `_new_hashes` for the shared text between two places."""
        cdef int32_t grain = self._search.grain, count = <int32_t>(end // grain - begin // grain), i
        if count > self._room_new:
            resize(&self._new_hashes, 2 * <size_t>count * sizeof(uint64_t))
            self._room_new = 2 * count
        for i in range(count):
            self._new_hashes[i] = self._content.next_hash(holder.row, grain, self.hashes_ahead, &holder.cursor)
        return 0

    cdef int _list_blocks(self, int32_t slot, int32_t group, int64_t known_tokens) except -1 nogil:
        """Put full blocks of a group into the prefix cache; `_new_hashes` begin behind the blocks already there."""
        cdef Holder* holder = &self._holders[slot]
        cdef int32_t* blocks
        cdef int32_t size = (<LayerKind>self._kinds[group]).block_size, i
        cdef int32_t end = <int32_t>(known_tokens // size), public = <int32_t>(holder.public_tokens // size)
        cdef int64_t before = holder.hashed_tokens
        cdef Run run = (<LayerKind>self._kinds[group]).kept(<int32_t>(before // size), &holder.ends)
        cdef uint64_t key
        self._write(slot, group, min(end, public))
        blocks = self._tables[<size_t>slot * self._num_groups + group].blocks
        while run.begin < min(end, public):
            for i in range(run.begin, min(run.end, min(end, public))):
                if blocks[i] == NO_BLOCK:
                    continue
                key = salted(self._new_hashes[((<int64_t>i + 1) * size - before) // self._search.grain - 1],
                             self._search.salts[group])
                blocks[i] = self.store.list_as(blocks[i], key)
                if (<LayerKind>self._kinds[group]).keeps_newest:
                    self._note_state(key)
                    if self.listed is not None:
                        self._note_listed(slot, group, i, (<int64_t>i + 1) * size)
            if run.end >= end:
                break
            run = (<LayerKind>self._kinds[group]).kept(run.end, &holder.ends)
        if self.store.names_all:
            self._list_own(slot, group, max(<int32_t>(before // size), public), end, True)
        return 0

    cdef int _list_checkpoint(self, int32_t slot, int32_t group) except -1 nogil:
        """List the state that the last turn wrote inside its chunk: it ends a block before the entry that holds it.

        vLLM keeps it at the place of its prompt where a hit ends, at a junction, and wherever it keeps all or some at
        regular places. Source: vLLM 0.33.0 and 0.32.0, MambaManager, cache of a partial tail block.
        """
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef const Holder* holder = &self._holders[slot]
        cdef int32_t size = (<LayerKind>self._kinds[group]).block_size, place, index
        cdef int64_t end = table.checkpoint
        cdef Ends nowhere = Ends(0, 0, 0)
        cdef Run run
        cdef uint64_t hash
        if end <= 0:
            return 0
        table.checkpoint = 0
        place, index = table.size - 2 - (<LayerKind>self._kinds[group]).drafts, <int32_t>(end // size) - 1
        run = (<LayerKind>self._kinds[group]).kept(index, &nowhere)
        if end != holder.ends.longer and end != holder.junction and run.begin != index:
            return self._forget_hash(slot, group, place)
        if index == place:
            return 0
        self._forget_hash(slot, group, place)
        hash = self._hash_until(holder, end)
        table.blocks[place] = self.store.list_as(table.blocks[place], salted(hash, self._search.salts[group]))
        self._note_state(salted(hash, self._search.salts[group]))
        return self._note_listed(slot, group, place, end) if self.listed is not None else 0

    cdef int _forget_hash(self, int32_t slot, int32_t group, int32_t place) except -1 nogil:
        """Let no lookup find the block at a place of a table."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        if table.blocks[place] > NO_BLOCK and self.store.prefixes.blocks[table.blocks[place]].hash != 0:
            (<NamedStore>self.store).unlist(table.blocks[place])
            if self.listed is not None:
                self.listed.drop_block(self._holders[slot].row, table.blocks[place])
        return 0

    cdef int _list_own(self, int32_t slot, int32_t group, int32_t begin, int32_t end, bint returns) except -1 nogil:
        """Put blocks of private text into the prefix cache; unless the request returns, no lookup finds them."""
        cdef Holder* holder = &self._holders[slot]
        cdef int32_t* blocks = self._tables[<size_t>slot * self._num_groups + group].blocks
        cdef int32_t step = (<LayerKind>self._kinds[group]).block_size // self._search.grain, i
        cdef Run run = Run(begin, begin)
        while run.end < end:
            run = (<LayerKind>self._kinds[group]).kept(run.end, &holder.ends)
            for i in range(run.begin, min(run.end, end)):
                if blocks[i] == NO_BLOCK or (blocks[i] != NAMELESS and not self.store.names_all):
                    continue
                if returns:
                    blocks[i] = self.store.list_as(blocks[i], salted(
                        own_hash(holder.row, (i + 1) * step - 1), self._search.salts[group]))
                    if self.listed is not None and (<LayerKind>self._kinds[group]).keeps_newest:
                        self._note_listed(slot, group, i, (<int64_t>i + 1) * step * self._search.grain)
                else:
                    blocks[i] = NOBODYS
        return 0

    cdef bint _is_new_state(self, int32_t group) noexcept nogil:
        """Say whether the state found is one that the batch being formed will compute."""
        cdef int32_t size = self._search.sizes[group], i
        cdef uint64_t key
        if size == 0 or not (<LayerKind>self._kinds[group]).keeps_newest:
            return False
        key = self.store.prefixes.blocks[self._search.blocks[group][size - 1]].hash
        for i in range(self._num_states):
            if self._new_states[i] == key:
                return True
        return False

    cdef int _note_state(self, uint64_t key) except -1 nogil:
        if self._num_states == self._room_states:
            resize(&self._new_states, (2 * <size_t>self._room_states + 16) * sizeof(uint64_t))
            self._room_states = 2 * self._room_states + 16
        self._new_states[self._num_states] = key
        self._num_states += 1
        return 0

    cdef int _note_last_states(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        """Note the last state of a prompt again, as long as its sequence holds it, as vLLM does."""
        cdef const Table* table
        cdef int32_t group, size, index
        for group in range(self._num_groups if known_tokens > 0 else 0):
            if not (<LayerKind>self._kinds[group]).keeps_newest:
                continue
            table = &self._tables[<size_t>slot * self._num_groups + group]
            size = (<LayerKind>self._kinds[group]).block_size
            index = (self._content.prompt_tokens(self._holders[slot].row) - (self.dropped_tokens == 0)) // size - 1
            index -= self.dropped_tokens > 0
            if (known_tokens == (<int64_t>index + 1) * size and index < table.size and table.blocks[index] > NO_BLOCK
                    and (self.dropped_tokens > 0 or known_tokens > self._content.prompt_tokens(
                        self._holders[slot].row) - 1 - self._hash_unit)):
                self._note_state(self.store.prefixes.blocks[table.blocks[index]].hash)
        return 0

    # ---- hits inside blocks

    cdef int _list_tails(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        """Let the last place of a prompt where a hit may end be found, where it is inside a block.

        A block of full attention keeps its text up to there. A state does not: lookups find it while it is the newest;
        then it is copied, see `_copy`. If hits end with whole blocks, vLLM lists the former, too, without effect.
        Source: vLLM 0.32.0, _cache_partial_tail_block of both managers.
        """
        cdef Holder* holder = &self._holders[slot]
        cdef int64_t end = (self._content.prompt_tokens(holder.row) - 1) // self._hash_unit * self._hash_unit
        cdef Table* table
        cdef int32_t group, size, place
        cdef bint is_state
        cdef uint64_t key
        if 0 < end <= known_tokens and holder.tail_hash == 0:
            holder.tail_hash = self._hash_until(holder, end)
        for group in range(self._num_groups if 0 < end <= known_tokens else 0):
            table = &self._tables[<size_t>slot * self._num_groups + group]
            size, is_state = (<LayerKind>self._kinds[group]).block_size, (<LayerKind>self._kinds[group]).keeps_newest
            place = <int32_t>((end - 1) // size)
            if not (self.hits_end_inside and known_tokens == end if is_state else
                    (<LayerKind>self._kinds[group]).is_full and end % size != 0):
                continue
            if place >= table.size or table.blocks[place] == NO_BLOCK:
                continue
            key = salted(holder.tail_hash, self._search.salts[group])
            self.store.also_list_as(table.blocks[place], key)
            if is_state:
                self._note_state(key)
                if end % size != 0:
                    table.copied, table.copy_is_found = place, True
        return 0

    cdef uint64_t _hash_until(self, const Holder* holder, int64_t end) noexcept nogil:
        cdef int32_t grain = self._search.grain, _
        cdef Cursor cursor
        if end > holder.public_tokens:
            return own_hash(holder.row, <int32_t>(end // grain) - 1 if end % grain == 0 else INT32_MAX)
        memset(&cursor, 0, sizeof(cursor))
        for _ in range(<int32_t>(end // grain)):
            self._content.next_hash(holder.row, grain, self.hashes_ahead, &cursor)
        if end % grain != 0:
            self._content.next_hash(holder.row, <int32_t>(end % grain), self.hashes_ahead, &cursor)
        return cursor.hash

    cdef bint _must_copy(self, int32_t slot, int32_t group, int32_t hits) noexcept nogil:
        """Say whether a sequence will write into a block, or one that begins so, that others find as it is."""
        if self._holders[slot].row >= 0:
            return self._tables[<size_t>slot * self._num_groups + group].copied >= 0
        return hits > 0 and self._found_tokens % (<LayerKind>self._kinds[group]).block_size != 0

    cdef int _copy(self, Table* table, int32_t group) except -1 nogil:
        """Copy the block that the sequence is about to write into; both are held until the batch is formed.

        A sequence that begins gets the copy. One that has run goes on in its block, and lookups find the copy. Source:
        vLLM 0.32.0, allocate_new_blocks of SingleTypeKVCacheManager and of MambaManager.
        """
        cdef int32_t place = table.copied, block = table.blocks[place], copy = NO_BLOCK
        table.copied = -1
        self.free_blocks -= 1
        self.store.take(&copy, 1, self.free_blocks)
        if table.copy_is_found:
            self.store.move_hashes(block, copy)
            self._note_state(self.store.prefixes.blocks[copy].hash)
            self._hold(group, block)
        else:
            table.blocks[place] = copy
            self._hold(group, copy)
        if self._num_copied == self._room_copied:
            resize(&self._copied, (2 * <size_t>self._room_copied + 16) * sizeof(Copied))
            self._room_copied = 2 * self._room_copied + 16
        self._copied[self._num_copied] = Copied(group, block, copy)
        self._num_copied += 1
        return 0

    # ---- allocation

    cdef int32_t whole_blocks(self, int64_t num_tokens) noexcept nogil:
        cdef int64_t total = 0
        cdef int32_t group
        for group in range(self._num_groups):
            total += min(blocks_for(num_tokens, (<LayerKind>self._kinds[group]).block_size), self._least[group])
            total += (<LayerKind>self._kinds[group]).drafts
        return <int32_t>min(total, <int64_t>INT32_MAX)

    def blocks_at_once(self, int64_t begin, int64_t end):
        """Return the blocks of a sequence in an iteration that computes the tokens begin .. end - 1 of a text."""
        cdef int64_t total = 0
        cdef LayerKind kind
        cdef int32_t group
        for group in range(self._num_groups):
            kind = <LayerKind>self._kinds[group]
            total += 1 if kind.keeps_newest else (
                blocks_for(end, kind.block_size) - kind.outdated(begin) // kind.block_size)
        return total

    cdef int64_t _missing(self, int32_t slot, int64_t slots) noexcept nogil:
        return self._need(slot, 0, slots, slots, False)

    cdef int64_t needed(self, int32_t slot, int32_t hits, int64_t slots) noexcept nogil:
        return self._need(slot, hits, slots, slots, False)

    cdef int announce_turn(self, int32_t slot, int64_t computed) except -1 nogil:
        cdef const Table* table
        cdef int32_t group
        for group in range(self._num_groups if self.fences is not None else 0):
            table = self.table(slot, group)
            if computed % (<LayerKind>self._kinds[group]).block_size == 0:
                self.announce(table.blocks[table.size - 1])
        self._holders[slot].announced = computed + 1
        return 0

    cdef int64_t arriving_blocks(self, int32_t slot, int32_t group) noexcept nogil:
        cdef const Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int64_t found = self._holders[slot].hashed_tokens // (<LayerKind>self._kinds[group]).block_size
        return self._num_held(slot, group, max(table.begin, <int32_t>found))

    cdef int32_t _num_held(self, int32_t slot, int32_t group, int32_t begin) noexcept nogil:
        """Return the blocks of a table from entry `begin` on."""
        cdef const Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t written = table.size, count = 0, i
        if (<LayerKind>self._kinds[group]).is_counted:
            written = min(table.num_written, table.size)
            count = max(table.size - max(max(begin, table.begin), written), 0)
        for i in range(begin, written):
            count += table.blocks[i] != NO_BLOCK
        return count

    cdef int _write(self, int32_t slot, int32_t group, int32_t end) except -1 nogil:
        """Write the entries of a table before `end` that are counted alone."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t i
        if not (<LayerKind>self._kinds[group]).is_counted or end <= table.num_written:
            return 0
        if end > table.room:
            resize(&table.blocks, 2 * <size_t>end * sizeof(int32_t))
            table.room = 2 * end
        for i in range(table.num_written, end):
            table.blocks[i] = NO_BLOCK if i < table.begin else NAMELESS
        table.num_written = end
        return 0

    cdef int32_t _first_needed(self, int32_t group) noexcept nogil:
        """Return the first block that a sequence with the last hit, and tokens loaded from elsewhere, needs."""
        cdef int64_t tokens = max(self._found_tokens, self._arriving_tokens)
        return <int32_t>((<LayerKind>self._kinds[group]).outdated(tokens)
                         // (<LayerKind>self._kinds[group]).block_size)

    cdef int32_t _end_of(self, int32_t group, int64_t slots, int64_t main) noexcept nogil:
        """Return the blocks of `slots` tokens; of a state kept where blocks end: of `main`, the model's."""
        return blocks_for(main if (<LayerKind>self._kinds[group]).keeps_newest else slots,
                          (<LayerKind>self._kinds[group]).block_size)

    cdef int64_t _need(self, int32_t slot, int32_t hits, int64_t slots, int64_t main, bint is_whole) noexcept nogil:
        cdef const Table* table
        cdef int64_t need = self._free_hits if hits > 0 else 0, lacking
        cdef int32_t number, group, have, end
        for number in range(self._num_kinds):               # tables of a kind have one shape
            group = (<LayerKind>self._searched[number]).groups[0]
            table = &self._tables[<size_t>slot * self._num_groups + group]
            have = table.size
            if have == 0 and (hits > 0 or self._arriving_tokens > 0):
                have = max(self._first_needed(group), self._search.sizes[group] if hits > 0 else 0)
            end = self._end_of(group, slots, main)
            if is_whole:
                end = min(end, (<LayerKind>self._kinds[group]).most_blocks)
            lacking = (<LayerKind>self._kinds[group]).missing(
                have, end, self._checkpoints(slot, group, hits, main) if self.checkpoint > 0 else 0,
                table.size > 0 and table.has_run)
            if self.hits_end_inside and self._must_copy(slot, group, hits):
                lacking = max(lacking, <int64_t>0) + 1
            need += lacking * (<LayerKind>self._searched[number]).num_groups
        for group in range(self._num_groups if hits > 0 and self._num_states > 0 else 0):
            if self._is_new_state(group):
                return INT32_MAX
        return need

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int64_t main = slots - self.ahead_slots
        cdef int32_t group, checkpoints
        cdef bint fits = (full_tokens == 0 or self._need(
            slot, hits, full_tokens, full_tokens, True) + watermark <= self.free_blocks)
        if self._has_drafts and self._holders[slot].row >= 0:
            self._holders[slot].computed = self.computed_tokens
        self.ahead_slots = 0
        if not fits or self._need(slot, hits, slots, main, False) + watermark > self.free_blocks:
            self._arriving_tokens = 0
            return 0
        if self._holders[slot].row < 0:
            self._begin(slot, row, hits)
            self._holders[slot].announced = 0
        for group in range(self._num_groups):
            if (<LayerKind>self._kinds[group]).keeps_newest:
                checkpoints = self._checkpoints(slot, group, hits, main) if self.checkpoint > 0 else 0
                self._extend_states(slot, group, main, checkpoints)
                self._tables[<size_t>slot * self._num_groups + group].checkpoint = (
                    main // self._whole * self._whole - self.dropped_tokens if checkpoints > 0 else 0)
            elif self._lacks(slot, group, slots):
                self._extend(slot, group, slots)
        self._holders[slot].computed = main
        return 1 if _cache_until(self, slot, _whole_tokens(self, main, known_tokens), known_tokens) == 0 else -1

    cdef int _begin(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil:
        """Let a request begin with all hits of the last lookup, or with nothing."""
        cdef Holder* holder = &self._holders[slot]
        cdef int32_t group
        cdef int64_t prompt = self._content.prompt_tokens(row)
        holder.row = row
        holder.computed = max(self._found_tokens, self._arriving_tokens)
        holder.behind = max(prompt, self._content.text_tokens(row) - 1)
        holder.public_tokens = self._search.public_tokens(row)
        holder.hashed_tokens = self._found_tokens
        holder.junction = self._junction
        holder.ends.prompt = max((prompt - 1) // self.hit_tokens * self.hit_tokens - self.dropped_tokens, <int64_t>0)
        holder.ends.longer = max(prompt // self.hit_tokens * self.hit_tokens - self.dropped_tokens, <int64_t>0) if (
            self.dropped_tokens > 0) else 0
        holder.ends.junction = self._junction // self.hit_tokens * self.hit_tokens
        holder.tail_hash = 0
        memset(&holder.cursor, 0, sizeof(holder.cursor))
        self._search.cursor_at(min(self._found_tokens, holder.public_tokens), &holder.cursor)
        for group in range(self._num_groups):
            self._begin_table(slot, group)
        for group in range(self._num_groups if self._arriving_tokens > 0 else 0):
            self._extend(slot, group, self._arriving_tokens)
        self._arriving_tokens = 0
        return 0

    cdef int _begin_table(self, int32_t slot, int32_t group) except -1 nogil:
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t first, found = self._search.sizes[group], written
        first = self._first_needed(group) if self._found_tokens + self._arriving_tokens > 0 else 0
        table.size = max(first, found)
        table.num_written = written = found if (<LayerKind>self._kinds[group]).is_counted else table.size
        table.begin, table.last, table.copied, table.checkpoint, table.has_run = first, -1, -1, 0, False
        if self.hits_end_inside and self._found_tokens % (<LayerKind>self._kinds[group]).block_size != 0:
            table.copied, table.copy_is_found = found - 1, False
        if written > table.room:
            resize(&table.blocks, 2 * <size_t>written * sizeof(int32_t))
            table.room = 2 * written
        if written == 0:
            return 0
        memset(table.blocks, 0, written * sizeof(int32_t))
        _hold_found(self, group, table.blocks, first, found)
        return 0

    cdef int _hold(self, int32_t group, int32_t block) except -1 nogil:
        self.num_shared += self.store.hold(block) == 2 and (<LayerKind>self._kinds[group]).frees_at >= 0
        return 0

    cdef int32_t _checkpoints(self, int32_t slot, int32_t group, int32_t hits, int64_t slots) noexcept nogil:
        """Return how many states a chunk that ends at `slots` tokens writes inside: 1 or 0.

        Source: vLLM 0.32.0, MambaManager.get_num_blocks_to_allocate, checkpoints inside of a prefill.
        """
        cdef const Holder* holder = &self._holders[slot]
        cdef const Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t size = (<LayerKind>self._kinds[group]).block_size, step, row = self._search.row
        cdef int32_t place = blocks_for(slots, size) - 2
        cdef int64_t begin = holder.computed, behind = holder.behind, end = (slots - 1) // self._whole * self._whole
        if self.dropped_tokens > 0:
            end = slots // self._whole * self._whole - self.dropped_tokens
        step = (<LayerKind>self._kinds[group]).checkpoint
        if step == 0 or place < 0:
            return 0
        if holder.row < 0:
            begin = max(self._found_tokens if hits > 0 else 0, self._arriving_tokens)
            behind = max(<int64_t>self._content.prompt_tokens(row), self._content.text_tokens(row) - 1)
        elif place < table.size and table.blocks[place] != NO_BLOCK and not (
                table.has_run and place >= table.size - (<LayerKind>self._kinds[group]).drafts):
            return 0
        if self._at_ends_alone and slots < behind:
            return 0
        return (begin % self.grid == 0 and place > blocks_for(begin, size) - 1 and begin + self.grid <= end < slots
                and (end - begin) % step == 0)

    cdef int _extend_states(self, int32_t slot, int32_t group, int64_t slots, int32_t checkpoints) except -1 nogil:
        """Take the states that are missing for `slots` tokens, one inside the chunk, and those of drafts behind them.

        States of drafts that the text has reached move to the end of the table. Source: vLLM 0.33.0 and 0.32.0,
        MambaManager.allocate_new_blocks.
        """
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t drafts = (<LayerKind>self._kinds[group]).drafts, before = table.size, i
        cdef int32_t newest = blocks_for(slots, (<LayerKind>self._kinds[group]).block_size) - 1
        cdef int32_t end = newest + 1 + drafts
        if drafts == 0:
            return self._extend(slot, group, slots, checkpoints)
        if end <= before and table.copied < 0 and checkpoints == 0:
            table.has_run = True
            return 0
        table.last = before - 1 - (drafts if table.has_run else 0)
        if end > table.room:
            resize(&table.blocks, 2 * <size_t>end * sizeof(int32_t))
            table.room = 2 * end
        if before < newest - checkpoints:
            memset(table.blocks + before, 0, (newest - checkpoints - before) * sizeof(int32_t))
            table.size = newest - checkpoints
        for i in range(before - drafts if table.has_run else before, min(before, newest - checkpoints)):
            table.blocks[table.size], table.blocks[i] = table.blocks[i], NO_BLOCK
            table.size += 1
        if table.copied >= 0:
            self._copy(table, group)
        if end > table.size:
            self.free_blocks -= end - table.size
            self.store.take(table.blocks + table.size, end - table.size, self.free_blocks)
            table.size = end
        table.has_run = True
        return 0

    cdef int _extend(self, int32_t slot, int32_t group, int64_t slots, int32_t checkpoints=0) except -1 nogil:
        """Take the blocks of a group that are missing for `slots` tokens, with states inside the chunk."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t end = blocks_for(slots, (<LayerKind>self._kinds[group]).block_size), first = table.size
        if not (<LayerKind>self._kinds[group]).keeps_newest:
            end += (<LayerKind>self._kinds[group]).drafts
        if table.copied >= 0:
            table.last = table.size - 1
            self._copy(table, group)
        if end <= table.size:
            return 0
        if (<LayerKind>self._kinds[group]).is_counted:
            self.free_blocks -= end - table.size
            self.store.take_nameless(self.free_blocks)
            table.size = end
            return 0
        if end > table.room:
            resize(&table.blocks, 2 * <size_t>end * sizeof(int32_t))
            table.room = 2 * end
        if (<LayerKind>self._kinds[group]).keeps_newest:
            first = max(end - 1 - checkpoints, table.size)
            table.last = table.size - 1
            memset(table.blocks + table.size, 0, (first - table.size) * sizeof(int32_t))
        self.free_blocks -= end - first
        self.store.take(table.blocks + first, end - first, self.free_blocks)
        table.size = end
        return 0

    cdef int slide(self, int32_t slot, int64_t settled_tokens) except -1 nogil:
        cdef int32_t group
        if self._holders[slot].row < 0:
            self._arriving_tokens = settled_tokens
            self._free_hits = self._count_free_hits()
            return 0
        if self._is_outdated(slot, settled_tokens):
            for group in range(self._num_groups):
                if (<LayerKind>self._kinds[group]).is_local:
                    self._slide(slot, group, settled_tokens)
        return 0

    cdef bint _is_outdated(self, int32_t slot, int64_t settled_tokens) noexcept nogil:
        """Say whether a window may have passed a block, or a state is outdated."""
        cdef const Table* table
        cdef int32_t number
        for number in range(self._num_kinds):
            if not (<LayerKind>self._searched[number]).is_local:
                continue
            table = self.table(slot, (<LayerKind>self._searched[number]).groups[0])
            if table.last >= 0 or (<LayerKind>self._searched[number]).outdated(settled_tokens) >= (
                    (<int64_t>table.begin + 1) * (<LayerKind>self._searched[number]).block_size):
                return True
        return False

    cdef int _slide(self, int32_t slot, int32_t group, int64_t settled_tokens) except -1 nogil:
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t size = (<LayerKind>self._kinds[group]).block_size
        cdef int32_t end = min(<int32_t>((<LayerKind>self._kinds[group]).outdated(settled_tokens) // size), table.size)
        if end > table.begin:
            self._give_up(slot, group, table.begin, end, True)
            table.begin = end
        if table.last >= 0 and table.last < blocks_for(settled_tokens, size) - 1:
            self._give_up(slot, group, table.last, table.last + 1, True)
            table.last = -1
        return 0

    cdef int _give_up(self, int32_t slot, int32_t group, int32_t begin, int32_t end, bint returns) except -1 nogil:
        """Release blocks begin .. end - 1 of a group; `returns`: a lookup of their request may find them again."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef const Holder* holder = &self._holders[slot]
        cdef int32_t size = (<LayerKind>self._kinds[group]).block_size, own, end_own, written = end
        if self._caching and not self.store.names_all:
            own, end_own = <int32_t>(holder.public_tokens // size), <int32_t>(holder.hashed_tokens // size)
            own, end_own = max(begin, own), min(end, end_own)
            if own < end_own and not returns and (<LayerKind>self._kinds[group]).is_counted:
                own = self._own_blocks(slot, group, max(own, table.num_written), end_own)
                if own > 0:
                    self.store.release_nobodys(own)
            elif own < end_own:
                self._write(slot, group, end_own)
                self._list_own(slot, group, own, end_own, returns)
        if (<LayerKind>self._kinds[group]).is_counted:
            written = min(end, table.num_written)
            self.free_blocks += end - max(begin, written)
        if begin >= written:
            return 0
        self.free_blocks += self.store.release(table.blocks, begin, written)
        if (<LayerKind>self._kinds[group]).frees_at >= 0:
            self.num_shared -= self.store.num_left_alone
        return 0

    cdef bint _is_own(self, int32_t slot, int32_t group, int32_t index) noexcept nogil:
        """Say whether a private block without an entry in its table is cached."""
        cdef const Holder* holder = &self._holders[slot]
        cdef int64_t size = (<LayerKind>self._kinds[group]).block_size, end = (<int64_t>index + 1) * size
        cdef Run run
        if not self._caching or index < self.table(slot, group).num_written or not (
                holder.public_tokens < end <= holder.hashed_tokens):
            return False
        run = (<LayerKind>self._kinds[group]).kept(index, &holder.ends)
        return run.begin == index < run.end

    cdef int _list_passed(self, int32_t slot, LayerKind kind) except -1 nogil:
        """List the private blocks that a window passed, unless they were reused."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + kind.groups[0]]
        cdef int32_t row = self._holders[slot].row, element = table.passed, place = table.begin, count, before, i
        cdef uint64_t hash
        while element != 0 and place > 0:
            place -= 1
            count = self.store.num_passed(element, place_name(row, kind.groups[0], place))
            if count == 0:                      # it is not kept, or was reused
                continue
            before = self.store.before_passed(element)
            hash = own_hash(row, <int32_t>((<int64_t>place + 1) * kind.block_size // self._search.grain) - 1)
            for i in range(kind.num_groups - count, kind.num_groups):
                self.store.list_passed(element, salted(hash, self._search.salts[kind.groups[i]]))
            element = before
        table.passed = 0
        return 0

    cdef int32_t _own_blocks(self, int32_t slot, int32_t group, int32_t begin, int32_t end) noexcept nogil:
        """Return how many blocks begin .. end - 1 of private text are in the prefix cache."""
        cdef Run run = Run(begin, begin)
        cdef int32_t count = 0
        while run.end < end:
            run = (<LayerKind>self._kinds[group]).kept(run.end, &self._holders[slot].ends)
            count += max(min(run.end, end) - run.begin, 0)
        return count

    cdef void _clear(self, int32_t slot, int32_t group) noexcept nogil:
        """Let the table of a group have no entries."""
        cdef Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        table.size = table.begin = table.num_written = table.passed = 0

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef const Table* table
        cdef int32_t group, number
        for number in range(self._num_kinds if returns else 0):
            self._list_passed(slot, <LayerKind>self._searched[number])
        for group in range(self._num_groups):
            table = &self._tables[<size_t>slot * self._num_groups + group]
            self._give_up(slot, group, table.begin, table.size, returns)
            self._clear(slot, group)
        self._holders[slot].row = -1
        return 0

    cdef int release_late(self, int32_t slot) except -1 nogil:
        cdef const Table* table
        cdef int32_t group
        for group in range(self._num_groups - 1, -1, -1):           # as one list of blocks
            table = &self._tables[<size_t>slot * self._num_groups + group]
            self.store.goes_on = group < self._num_groups - 1
            self._give_up(slot, group, table.begin, table.size, False)
            self._clear(slot, group)
        self.store.goes_on = False
        self._holders[slot].row = -1
        return 0

    def forget(self):
        """See KVCache."""
        self.store.clear()

    # ---- the debug face

    def follow(self):
        """Return a CacheLog of hashes that enter and leave the prefix cache from now on; it must still be empty.

        It has the blocks of the first group of full attention under the plain hashes, blocks of other groups under
        salted ones; the chain has pieces of `hash_tokens`. None: blocks are of different sizes, and no group is of
        full attention.
        """
        if len({group.block_size for group in self.layers.groups}) > 1 and not any(
                group.kind == "full_attention" for group in self.layers.groups):
            return None
        if self.free_blocks < self.num_blocks or self.store.blank(self.free_blocks) < min(self.free_blocks, 1):
            raise ValueError("a cache can be followed only from its beginning")
        self.store.prefixes.log = CacheLog(self.store.prefixes.log)
        return self.store.prefixes.log

    @property
    def hash_tokens(self):
        """Tokens of the pieces over which hashes are chained."""
        return self._search.grain

    def log_evictions(self):
        """Keep the indices of cached blocks that are reused from now on."""
        self.store.log_evictions()

    def take_evictions(self):
        """Return the reused blocks since the last call, in order."""
        return self.store.take_evictions()

    def free_queue(self):
        """Return the free blocks in the order in which they will be reused."""
        return self.store.free_queue()

    @property
    def num_cached_hashes(self):
        """Distinct texts in cached blocks, each counted once in each group."""
        return self.store.num_cached_hashes

    def block_table(self, int32_t slot):
        """Return the blocks of a slot: a list for each group, or a single list with one group."""
        cdef int32_t group
        tables = []
        for group in range(self._num_groups):
            tables.append(self._entries(slot, group))
        return tables if self._num_groups > 1 else tables[0]

    def _entries(self, int32_t slot, int32_t group):
        cdef const Table* table = &self._tables[<size_t>slot * self._num_groups + group]
        cdef int32_t written = table.size, i
        if (<LayerKind>self._kinds[group]).is_counted:
            written = min(table.num_written, table.size)
        return [table.blocks[i] for i in range(written)] + [
            NO_BLOCK if i < table.begin else NAMELESS for i in range(written, table.size)]

    def check(self, owned_total=None):
        """Raise RuntimeError unless the block tables and the pool agree.

        owned_total : blocks that all sequences own, as counted by the caller; shared ones as often as they are held.
        """
        held = [name for slot in range(self.num_slots) for group in range(self._num_groups)
                for name in self._entries(slot, group) if name != NO_BLOCK]
        self.store.check(held, self.free_blocks)
        named = [name for name in held if name > NO_BLOCK]
        if owned_total is not None and self.free_blocks + owned_total - len(named) + len(set(named)) != self.num_blocks:
            raise RuntimeError(f"{self.free_blocks} free + {owned_total} owned, {len(set(named))} blocks {len(named)} "
                               f"times, != {self.num_blocks} blocks")


cdef void _hold_found(GroupTables self, int32_t group, int32_t* entries, int32_t begin, int32_t end) noexcept nogil:
    """Let a table begin with blocks begin .. end - 1 of the last lookup: most are held by others, too."""
    cdef Block* blocks = self.store.prefixes.blocks
    cdef const int32_t* found = self._search.blocks[group]
    cdef int32_t i, block, references, num_free = 0, num_shared = 0
    for i in range(begin, end):
        block = found[i]
        entries[i] = block
        if block == NO_BLOCK:
            continue
        references = blocks[block].references
        if references == 0:
            num_free += 1
            self.store.hold(block)
        else:                                   # as `hold` does, without a call
            blocks[block].references = references + 1
            num_shared += references == 1
    self.free_blocks -= num_free
    if (<LayerKind>self._kinds[group]).frees_at >= 0:
        self.num_shared += num_shared


cdef int64_t _whole_tokens(GroupTables self, int64_t computed, int64_t known_tokens) noexcept nogil:
    """Return the leading tokens of which blocks are listed after a turn up to `computed` tokens.

    Up to a multiple of all block sizes as far as the text is there; where a hash covers tokens behind its block, up to
    the last smallest block that has one. Source: vLLM 0.33.0, get_num_cacheable_tokens of HybridKVCacheCoordinator and
    cache_blocks of SingleTypeKVCacheManager.
    """
    cdef int64_t there = min(computed, known_tokens + self.hashes_ahead)
    return min(there // self.hit_tokens * self.hit_tokens, known_tokens // self._search.grain * self._search.grain)


cdef int _cache_until(GroupTables self, int32_t slot, int64_t tokens, int64_t known_tokens) except -1 nogil:
    """List the whole blocks of the first `tokens` tokens of a text, of which `known_tokens` are known."""
    cdef Holder* holder = &self._holders[slot]
    cdef int32_t group
    if not self._caching:
        return 0
    if tokens > holder.hashed_tokens:
        if self._lists(holder):
            self._chain(holder, holder.hashed_tokens, min(tokens, holder.public_tokens))
            for group in range(self._num_groups):
                self._list_blocks(slot, group, tokens)
        holder.hashed_tokens = tokens
    if self._lists_tails:
        self._list_tails(slot, tokens if self._counts_units else known_tokens)
    for group in range(self._num_groups if self.dropped_tokens > 0 and self.checkpoint > 0 else 0):
        self._list_checkpoint(slot, group)
    if self._has_states and not self.hits_end_inside:
        self._note_last_states(slot, tokens if self._counts_units else known_tokens)
    return 0
