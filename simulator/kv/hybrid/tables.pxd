"""The block tables of groups of layers that share one pool: content, lookup and release.

Source: the behaviour of vLLM 0.32.0, vllm/v1/core/{kv_cache_coordinator,single_type_kv_cache_manager}.py. Blocks that a
window has passed over are given back before a turn gets its blocks (`slide`). A hit must be one in every group.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content, Cursor
from simulator.kv.hybrid.block_store cimport BlockStore
from simulator.kv.hybrid.layer_kind cimport Ends, LayerKind, Search, Table, salted
from simulator.kv.hybrid.listed_states cimport ListedStates


cdef struct Holder:             # of a slot
    int32_t row                 # the request; -1: it holds nothing
    int64_t public_tokens       # leading tokens of text that others may share
    int64_t hashed_tokens       # leading tokens that have been considered for the prefix cache
    int64_t computed            # tokens that had room after its last turn, or visit
    int64_t regular_until       # see KVCache; of a member
    uint64_t active             # bits of the kinds in which a member gives blocks back, see TurnEvents
    int64_t announced           # tokens with room in blocks that were announced in turns of a member
    int64_t junction            # of the lookup with which it began
    int64_t behind              # of the prompt, or of its text without the last token: where chunks of it end
    Ends ends
    uint64_t tail_hash          # of the text up to the last place of the prompt where a hit may end; 0: not needed yet
    Cursor cursor               # behind the hashed tokens of shared text


# Name of a block of a text in the groups of a kind, of which `group` is the first.
cdef inline int64_t place_name(int32_t row, int32_t group, int32_t place) noexcept nogil:
    return <int64_t>row << 33 ^ <int64_t>group << 26 ^ place


cdef struct Copied:             # in the batch being formed
    int32_t group
    int32_t block, copy


cdef class GroupTables(KVCache):
    cdef readonly BlockStore store
    cdef Content _content
    cdef int64_t _max_model_len
    cdef bint _full_decides     # a layer with full attention is among them: no hit is longer than the blocks of it that
                                # a request left when it was preempted
    cdef bint _caching          # enable_prefix_caching, where anything can be found
    cdef readonly bint hits_end_inside  # blocks; all blocks have numbers then
    cdef int32_t _hash_unit     # see LayerGroups
    cdef bint _counts_units     # known tokens of a text count in whole units alone
    cdef bint _lists_tails      # blocks of full attention are listed under the hash of such a place inside them, too
    cdef Copied* _copied        # [_num_copied]
    cdef int32_t _num_copied
    cdef int32_t _room_copied
    cdef readonly int64_t checkpoint    # see LayerGroups
    cdef readonly int64_t dropped_tokens        # of a hit, that are computed again; 0: none
    cdef readonly int64_t grid  # tokens of which all block sizes are multiples
    cdef int64_t _whole         # tokens of which all block sizes are divisors
    cdef bint _at_ends_alone    # states are kept at the end of a prompt alone, and where a shared prefix ends
    cdef bint _has_drafts       # states of drafts are kept
    cdef bint _has_states       # of linear attention, in a group that keeps the newest
    cdef int32_t _num_groups
    cdef void** _kinds          # [_num_groups] LayerKind of each group, borrowed
    cdef void** _searched       # [_num_kinds] in the order in which they are searched
    cdef int32_t _num_kinds
    cdef object _owners         # objects that the pointers borrow from
    cdef Table* _tables         # [slot][_num_groups]
    cdef Holder* _holders       # [slot]
    cdef Search _search         # the last lookup
    cdef int64_t _found_tokens
    cdef int64_t _junction
    cdef int32_t _free_hits     # its blocks that are in the free queue
    cdef int64_t _arriving_tokens       # see `slide`
    cdef int64_t computed_tokens        # of a sequence that has blocks, before the next `allocate`; rejected drafts are
                                        # not among them
    cdef int64_t ahead_slots            # of the slots of the next `allocate`, those of a drafter alone, in which no
                                        # layer keeps a state; allocate() sets it to 0
    cdef uint64_t* _new_hashes  # [_room_new] of the chain, for blocks being listed
    cdef int32_t _room_new
    cdef uint64_t* _new_states  # [_num_states] states listed since the batch began to be formed
    cdef int32_t _num_states
    cdef int32_t _room_states
    cdef int32_t* _least        # [_num_groups] upper bound of the blocks of a text, for whole_blocks
    cdef readonly object layers         # LayerGroups
    cdef ListedStates listed    # None without fences
    cdef bint lists_prompts     # states of outputs are not in it
    cdef int64_t* _given_at     # [block] the turn in which a sequence got it last; NULL: there are no fences
    cdef int64_t turn           # of the tier: raised once for each of its steps

    # The block table of a sequence in a group.
    @cython.final
    cdef inline const Table* table(self, int32_t slot, int32_t group) noexcept nogil:
        return &self._tables[<size_t>slot * self._num_groups + group]

    # Blocks that a sequence lacks for a text and the slots of a step with drafts, in the check that it fits whole.
    @cython.final
    cdef inline int64_t lacking_whole(self, int32_t slot, int64_t text, int64_t draft_slots) noexcept nogil:
        return self._need(slot, 0, text + draft_slots, text, True)

    # Has a table of a kind without states fewer blocks than `slots` tokens take, or one to be copied?
    @cython.final
    cdef inline bint _lacks(self, int32_t slot, int32_t group, int64_t slots) noexcept nogil:
        cdef const Table* table = self.table(slot, group)
        return slots > <int64_t>table.size * (<LayerKind>self._kinds[group]).block_size or table.copied >= 0

    # Is the text in a block in the prefix cache?
    @cython.final
    cdef inline bint is_listed(self, int32_t block) noexcept nogil:
        return self.store.prefixes.blocks[block].hash != 0

    # A sequence gets a block: note its readers. was_given_after(): did a sequence get it after a turn?
    @cython.final
    cdef inline int announce(self, int32_t block) except -1 nogil:
        self._given_at[block] = self.turn
        return self.fences.touch(block)

    # Was the block at a place announced when its sequence took it, as a member?
    @cython.final
    cdef inline bint was_announced(self, int32_t slot, int32_t group, int32_t place) noexcept nogil:
        return <int64_t>place * (<LayerKind>self._kinds[group]).block_size < self._holders[slot].announced

    @cython.final
    cdef inline bint was_given_after(self, int64_t turn, int32_t block) noexcept nogil:
        return self._given_at[block] > turn

    # The key of a group's block; `hash` is that of the text up to its end, see `grain`.
    @cython.final
    cdef inline uint64_t key(self, int32_t group, uint64_t hash) noexcept nogil:
        return salted(hash, self._search.salts[group])

    @cython.final
    cdef inline int32_t grain(self) noexcept nogil:
        return self._search.grain

    cdef int32_t _count_free_hits(self) noexcept nogil
    cdef int64_t _find(self, int64_t most) noexcept nogil
    cdef int64_t _find_in(self, int32_t number, int64_t most, uint64_t* verified) noexcept nogil
    cdef int64_t _need(self, int32_t slot, int32_t hits, int64_t slots, int64_t main, bint is_whole) noexcept nogil
    cdef int32_t _first_needed(self, int32_t group) noexcept nogil
    cdef bint _is_new_state(self, int32_t group) noexcept nogil
    cdef int _note_state(self, uint64_t key) except -1 nogil
    cdef int _note_last_states(self, int32_t slot, int64_t known_tokens) except -1 nogil
    cdef int _list_checkpoint(self, int32_t slot, int32_t group) except -1 nogil
    cdef int _list_tails(self, int32_t slot, int64_t known_tokens) except -1 nogil
    cdef uint64_t _hash_until(self, const Holder* holder, int64_t end) noexcept nogil
    cdef bint _must_copy(self, int32_t slot, int32_t group, int32_t hits) noexcept nogil
    cdef int _forget_hash(self, int32_t slot, int32_t group, int32_t place) except -1 nogil
    cdef int _copy(self, Table* table, int32_t group) except -1 nogil
    cdef int _hold(self, int32_t group, int32_t block) except -1 nogil
    cdef int _begin(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil
    cdef int _begin_table(self, int32_t slot, int32_t group) except -1 nogil
    cdef int32_t _checkpoints(self, int32_t slot, int32_t group, int32_t hits, int64_t slots) noexcept nogil
    cdef int _extend(self, int32_t slot, int32_t group, int64_t slots, int32_t checkpoints=*) except -1 nogil
    cdef int _extend_states(self, int32_t slot, int32_t group, int64_t slots, int32_t checkpoints) except -1 nogil
    cdef int32_t _end_of(self, int32_t group, int64_t slots, int64_t main) noexcept nogil
    cdef int _chain(self, Holder* holder, int64_t begin, int64_t end) except -1 nogil
    cdef int _list_blocks(self, int32_t slot, int32_t group, int64_t known_tokens) except -1 nogil
    cdef int _note_listed(self, int32_t slot, int32_t group, int32_t index, int64_t end) except -1 nogil
    cdef int _list_own(self, int32_t slot, int32_t group, int32_t begin, int32_t end, bint returns) except -1 nogil
    cdef bint _is_outdated(self, int32_t slot, int64_t settled_tokens) noexcept nogil
    cdef int _slide(self, int32_t slot, int32_t group, int64_t settled_tokens) except -1 nogil
    cdef bint _is_own(self, int32_t slot, int32_t group, int32_t index) noexcept nogil
    cdef int _list_passed(self, int32_t slot, LayerKind kind) except -1 nogil
    cdef int _write(self, int32_t slot, int32_t group, int32_t end) except -1 nogil
    cdef int32_t _own_blocks(self, int32_t slot, int32_t group, int32_t begin, int32_t end) noexcept nogil
    cdef int32_t _num_held(self, int32_t slot, int32_t group, int32_t begin) noexcept nogil
    cdef void _clear(self, int32_t slot, int32_t group) noexcept nogil

    # Are full blocks put into the prefix cache at once? Else that is done when they are given back.
    @cython.final
    cdef inline bint _lists(self, const Holder* holder) noexcept nogil:
        return self._caching and (self.store.names_all or holder.hashed_tokens < holder.public_tokens)
    cdef int _give_up(self, int32_t slot, int32_t group, int32_t begin, int32_t end, bint returns) except -1 nogil
