"""Replicas that hold the blocks of a text, by medium; a prompt is matched against all replicas at once.

As in HolderSets, a step costs words, not replicas: the count of a replica is written when it ends.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.arithmetic cimport lowest_bit
from simulator.signals.holder_sets cimport HolderSets
from simulator.signals.media cimport DEVICE, DISK, HOST, SHARED


@cython.final
cdef class TierHolders:
    """Content of replicas beyond the KV blocks in `device`.

    device : HolderSets of all replicas.
    members : replicas that take part; all have chunks of `chunk_blocks` blocks.
    reach : for each store the members that read from it.
    """

    def __cinit__(self, HolderSets device, members, reach=(), int32_t chunk_blocks=1):
        cdef int32_t store, replica
        self.num_replicas, self._num_words = device.num_replicas, device.num_words
        self.chunk_blocks, self.num_stores = chunk_blocks, len(reach)
        self._set_list = [device, HolderSets(self.num_replicas), HolderSets(self.num_replicas),
                          HolderSets(max(self.num_stores, 1))]
        for store in range(NUM_MEDIA):
            self._sets[store] = <void*>self._set_list[store]
        self._members = <uint64_t*>calloc(self._num_words, sizeof(uint64_t))
        self._reach = <uint64_t*>calloc(<size_t>(self.num_stores + 1) * self._num_words, sizeof(uint64_t))
        self._scratch = <uint64_t*>calloc(<size_t>NUM_MEDIA * self._num_words, sizeof(uint64_t))
        self._alive = <uint64_t*>calloc(<size_t>NUM_MEDIA * self._num_words, sizeof(uint64_t))
        self._shared = <uint64_t*>calloc(self._num_words, sizeof(uint64_t))
        self._stores = <uint64_t*>calloc(self._set_list[SHARED].num_words, sizeof(uint64_t))
        self.found = <int32_t*>calloc(<size_t>NUM_MEDIA * self.num_replicas, sizeof(int32_t))
        if (self._members == NULL or self._reach == NULL or self._scratch == NULL or self._alive == NULL
                or self._shared == NULL or self._stores == NULL or self.found == NULL):
            raise MemoryError()
        for replica in members:
            self._members[replica // 64] |= <uint64_t>1 << (replica % 64)
        for store, readers in enumerate(reach):
            for replica in readers:
                self._reach[store * self._num_words + replica // 64] |= <uint64_t>1 << (replica % 64)

    def __dealloc__(self):
        free(self._members)
        free(self._reach)
        free(self._scratch)
        free(self._alive)
        free(self._shared)
        free(self._stores)
        free(self.found)

    cdef int note(self, int32_t medium, uint64_t hash, int32_t holder, bint is_there) except -1 nogil:
        if is_there:
            return (<HolderSets>self._sets[medium]).add(hash, holder)
        (<HolderSets>self._sets[medium]).remove(hash, holder)
        return 0

    cdef const uint64_t* _set_of(self, int32_t medium, const Leading* text, int32_t block) noexcept nogil:
        """Return the replicas that have a block of a text on a medium; NULL: none."""
        cdef int32_t chunk = block // self.chunk_blocks
        if block == text.num_blocks or (<HolderSets>self._sets[medium]).size() == 0:
            return NULL
        if medium == DEVICE:
            return (<HolderSets>self._sets[DEVICE]).find(text.blocks[block], self._scratch)
        if chunk >= text.num_chunks:
            return NULL
        if medium == SHARED:
            return self._readers_of(text.chunks[chunk])
        return (<HolderSets>self._sets[medium]).find(text.chunks[chunk], &self._scratch[medium * self._num_words])

    cdef const uint64_t* _readers_of(self, uint64_t hash) noexcept nogil:
        cdef const uint64_t* stores = (<HolderSets>self._sets[SHARED]).find(hash, self._stores)
        cdef int32_t store, k
        if stores == NULL:
            return NULL
        memset(self._shared, 0, self._num_words * sizeof(uint64_t))
        for store in range(self.num_stores):
            if stores[store // 64] >> (store % 64) & 1:
                for k in range(self._num_words):
                    self._shared[k] |= self._reach[store * self._num_words + k]
        return self._shared

    # ---- one medium after the other

    cdef void match_in_turn(self, const Leading* text, int32_t media) noexcept nogil:
        cdef int32_t i, medium
        cdef bint any_left
        cdef int32_t heirs[NUM_MEDIA]
        media |= 1 << DEVICE | (media >> DISK & 1) << HOST
        heirs[DEVICE] = media & (1 << HOST | 1 << SHARED)
        heirs[HOST], heirs[DISK], heirs[SHARED] = media & 1 << DISK, 0, 0
        memset(self.found, 0, <size_t>NUM_MEDIA * self.num_replicas * sizeof(int32_t))
        memset(self._alive, 0, <size_t>NUM_MEDIA * self._num_words * sizeof(uint64_t))
        memcpy(self._alive, self._members, self._num_words * sizeof(uint64_t))
        for i in range(text.num_blocks + 1):
            any_left = False
            for medium in range(NUM_MEDIA):
                if media >> medium & 1:
                    any_left |= self._pass_on(medium, self._set_of(medium, text, i), i, heirs[medium])
            if not any_left:
                return

    cdef bint _pass_on(self, int32_t medium, const uint64_t* holders, int32_t block, int32_t heirs) noexcept nogil:
        """End the counts of replicas without a block on a medium, and begin their heirs' counts. Is any left?"""
        cdef uint64_t* alive = &self._alive[medium * self._num_words]
        cdef uint64_t lost, any_left = 0
        cdef int32_t k, heir, replica
        for k in range(self._num_words):
            lost = alive[k] & ~holders[k] if holders != NULL else alive[k]
            alive[k] ^= lost
            any_left |= alive[k]
            if lost == 0:
                continue
            for heir in range(1, NUM_MEDIA):
                if heirs >> heir & 1:
                    self._alive[heir * self._num_words + k] |= lost
            while lost and block > 0:
                replica = 64 * k + lowest_bit(lost)
                self.found[medium * self.num_replicas + replica] += block
                for heir in range(1, NUM_MEDIA):
                    if heirs >> heir & 1:
                        self.found[heir * self.num_replicas + replica] -= block
                lost &= lost - 1
        return any_left != 0

    # ---- the best medium for each block

    cdef void match_best(self, const Leading* text, const int8_t* order, int32_t num_ordered) noexcept nogil:
        cdef const uint64_t* holders[NUM_MEDIA]
        cdef int32_t i, k
        memset(self.found, 0, <size_t>NUM_MEDIA * self.num_replicas * sizeof(int32_t))
        memset(self._alive, 0, <size_t>NUM_MEDIA * self._num_words * sizeof(uint64_t))
        for i in range(text.num_blocks + 1):
            for k in range(num_ordered):
                holders[k] = self._set_of(order[k], text, i)
            if not self._move(holders, order, num_ordered, i):
                return

    cdef bint _move(self, const uint64_t** holders, const int8_t* order, int32_t num_ordered,
                    int32_t block) noexcept nogil:
        """Let replicas change from the medium of the block before to that of this block. Is any left?"""
        cdef uint64_t left, here, change, any_left = 0
        cdef uint64_t* alive
        cdef int32_t k, i, replica
        for k in range(self._num_words):
            left = self._members[k]
            if block > 0:
                left = 0
                for i in range(num_ordered):
                    left |= self._alive[order[i] * self._num_words + k]
            for i in range(num_ordered):
                alive = &self._alive[order[i] * self._num_words + k]
                here = left & holders[i][k] if holders[i] != NULL else 0
                left ^= here
                any_left |= here
                change = alive[0] ^ here
                while change and block > 0:
                    replica = 64 * k + lowest_bit(change)
                    self.found[order[i] * self.num_replicas + replica] += (
                        -block if here & change & -change else block)
                    change &= change - 1
                alive[0] = here
        return any_left != 0

    def check(self):
        """Raise RuntimeError if a set is broken."""
        for holders in self._set_list:
            holders.check()

    # The face for tests and exploration.

    def tell(self, int32_t medium, uint64_t hash, int32_t holder, bint is_there):
        """Note that a chunk can be read from now on, or is gone; of SHARED the holder is a store."""
        self.note(medium, hash, holder, is_there)

    def held_by(self, int32_t medium, int32_t holder):
        """Return the set of the hashes of chunks that a replica, or a store, holds."""
        return self._set_list[medium].held_by(holder)

    def matches(self, blocks, chunks, media=None, order=None):
        """Return [medium][replica], counted by media or, with an `order`, at the best; both are lists of media."""
        cdef Leading text = Leading(NULL, NULL, len(blocks), len(chunks))
        cdef uint64_t* hashes = <uint64_t*>calloc(len(blocks) + len(chunks) + 1, sizeof(uint64_t))
        cdef int8_t ordered[NUM_MEDIA]
        cdef int32_t i
        if hashes == NULL:
            raise MemoryError()
        for i, hash in enumerate([*blocks, *chunks]):
            hashes[i] = hash
        text.blocks, text.chunks = hashes, hashes + text.num_blocks
        if order is None:
            self.match_in_turn(&text, sum(1 << medium for medium in media))
        else:
            for i, medium in enumerate(order):
                ordered[i] = medium
            self.match_best(&text, ordered, len(order))
        free(hashes)
        return [[self.found[medium * self.num_replicas + i] for i in range(self.num_replicas)]
                for medium in range(NUM_MEDIA)]
