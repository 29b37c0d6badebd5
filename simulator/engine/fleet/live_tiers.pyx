"""Hits of a prompt in the KV tiers of running replicas: an index kept as tiers change."""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.errors cimport broken, out_of_memory
from simulator.core.memory cimport resize
from simulator.kv.chunk_store cimport ChunkStore
from simulator.kv.prompt_hashes cimport read_hashes
from simulator.signals.media cimport DISK, HOST, NUM_MEDIA, SHARED

NOTHING = (0, 0)        # chunk_tokens and chain_tokens of a replica without a tier


@cython.final
cdef class LiveTiers:
    """The tiers of `replicas`, followed while still empty.

    replicas : list of Replica. holdings : of each, `kv.holdings.Holdings`; None: its tier holds nothing.
    shared : build.Shared, the objects shared by all parts of the cluster.
    devices : for each replica the HolderSets of the prefix caches with its block size.
    block_size : tokens in which blocks are counted.
    """

    def __init__(self, replicas, holdings, shared, devices, int32_t block_size):
        cdef const Request[::1] requests = shared.workload.requests
        self.num_replicas, self.block_size = len(replicas), block_size
        self._content = shared.content
        if len(requests):
            self._requests = &requests[0]
        sizes = [replica.scheduler.kv.block_size for replica in replicas]
        kinds = [(size, *(held[:2] if held else NOTHING)) for size, held in zip(sizes, holdings, strict=True)]
        groups = list(dict.fromkeys(kinds))
        stores = [list(dict.fromkeys(store for kind, held in zip(kinds, holdings, strict=True) if held and kind == group
                                     for store in held.shared)) for group in groups]
        holders = [TierHolders(
            devices[kinds.index(group)], [i for i, kind in enumerate(kinds) if kind == group],
            [[i for i, held in enumerate(holdings) if kinds[i] == group and held and store in held.shared]
             for store in stores[k]], max(group[1] // group[0], 1)) for k, group in enumerate(groups)]
        self._take_groups(groups, holders, [groups.index(kind) for kind in kinds])
        self._follow(holdings, stores)
        self._owners = (shared, holders, self._owners)

    def _take_groups(self, groups, holders, group_of):
        cdef int32_t i
        self._num_groups = len(groups)
        self._groups = <TierGroup*>calloc(len(groups), sizeof(TierGroup))
        self._group_of = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if len(groups) > 1:
            self._scaled = <int32_t*>calloc(<size_t>NUM_MEDIA * self.num_replicas, sizeof(int32_t))
        if self._groups == NULL or self._group_of == NULL or (len(groups) > 1 and self._scaled == NULL):
            raise MemoryError()
        for i, (block_size, chunk_tokens, chain_tokens) in enumerate(groups):
            self._groups[i].block_size, self._groups[i].scale = block_size, block_size // self.block_size
            self._groups[i].chunk_tokens, self._groups[i].chain_tokens = chunk_tokens, chain_tokens
            self._groups[i].holders = <void*>holders[i]
        for i in range(self.num_replicas):
            self._group_of[i] = group_of[i]

    def _follow(self, holdings, stores):
        """List all stores to follow: first of each replica, then the shared ones."""
        cdef int32_t i, k
        found, firsts = [], []
        for i, held in enumerate(holdings):
            firsts.append(len(found))
            for medium, each in ((HOST, held.host), (DISK, held.disks)) if held else ():
                begin = len(found)
                found += [(store, store.follow(), self._group_of[i], medium, i, begin, begin + len(each))
                          for store in each]
        firsts.append(len(found))
        for i, shared in enumerate(stores):
            found += [(store, store.follow(), i, SHARED, k, len(found) + k, len(found) + k + 1)
                      for k, store in enumerate(shared)]
        self._owners, self._num_followed = found, len(found)
        self._followed = <Followed*>calloc(len(found) + 1, sizeof(Followed))
        self._first_of = <int32_t*>calloc(len(firsts), sizeof(int32_t))
        if self._followed == NULL or self._first_of == NULL:
            raise MemoryError()
        for i, (store, log, group, medium, holder, begin, end) in enumerate(found):
            self._followed[i] = Followed(<void*>store, <void*>log, group, medium, holder, begin, end)
        for i, first in enumerate(firsts):
            self._first_of[i] = first

    def __dealloc__(self):
        free(self._groups)
        free(self._group_of)
        free(self._followed)
        free(self._first_of)
        free(self._scaled)
        free(self._hashes)

    # ---- changes

    cdef int take_in(self, int32_t replica) except -1 nogil:
        return self._take_in_all(self._first_of[replica], self._first_of[replica + 1])

    cdef int take_in_stores(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._first_of[self.num_replicas], self._num_followed):
            (<ChunkStore>self._followed[i].store).settle(now_ns)
        return self._take_in_all(self._first_of[self.num_replicas], self._num_followed)

    cdef int _take_in_all(self, int32_t begin, int32_t end) except -1 nogil:
        cdef const Followed* it
        cdef int32_t i
        for i in range(begin, end):
            it = &self._followed[i]
            if (<CacheLog>it.log).size > 0:
                self._take_in(it, <CacheLog>it.log, <TierHolders>self._groups[it.group].holders)
        return 0

    cdef int _take_in(self, const Followed* it, CacheLog log, TierHolders holders) except -1 nogil:
        """Index each logged chunk by whether any store on the medium holds it: there may be several."""
        cdef bint is_there
        cdef int64_t i
        cdef int32_t k
        if log.has_lost_some:
            return out_of_memory()
        for i in range(log.size):
            is_there = False
            for k in range(it.begin, it.end):
                is_there = is_there or (<ChunkStore>self._followed[k].store).has(log.changes[i].hash)
            holders.note(it.medium, log.changes[i].hash, it.holder, is_there)
        log.size = 0
        return 0

    # ---- lookups

    cdef const int32_t* in_turn(self, int32_t row, int32_t media) except NULL nogil:
        return self._match(row, media, NULL, 0)

    cdef const int32_t* best(self, int32_t row, const int8_t* order, int32_t num_ordered) except NULL nogil:
        return self._match(row, 0, order, num_ordered)

    cdef const int32_t* _match(self, int32_t row, int32_t media, const int8_t* order,
                               int32_t num_ordered) except NULL nogil:
        """Match the shareable part of a prompt, medium after medium or, with an `order`, for the best result."""
        cdef const TierGroup* group
        cdef int32_t i
        cdef Leading text
        for i in range(self._num_groups):
            group = &self._groups[i]
            self._read(row, group, &text)
            if order == NULL:
                (<TierHolders>group.holders).match_in_turn(&text, media)
            else:
                (<TierHolders>group.holders).match_best(&text, order, num_ordered)
        if self._num_groups > 1:
            return self._scale()
        return (<TierHolders>self._groups[0].holders).found

    cdef int _read(self, int32_t row, const TierGroup* group, Leading* text) except -1 nogil:
        """Read the hashes of the beginning of a prompt."""
        cdef int32_t tokens = min(self._requests[row].prompt_tokens, self._content.public_tokens(row))
        cdef int32_t step = 1, i
        cdef uint64_t* chunks
        text.num_blocks, text.num_chunks = tokens // group.block_size, 0
        if group.chunk_tokens > 0:
            text.num_chunks, step = tokens // group.chunk_tokens, group.chunk_tokens // group.chain_tokens
        if text.num_blocks + text.num_chunks * step > self._room:
            self._room = 2 * (text.num_blocks + text.num_chunks * step)
            resize(&self._hashes, self._room * sizeof(uint64_t))
        chunks = self._hashes + text.num_blocks
        text.blocks, text.chunks = self._hashes, chunks
        read_hashes(self._content, row, group.block_size, text.num_blocks, self._hashes)
        read_hashes(self._content, row, group.chain_tokens, text.num_chunks * step, chunks)
        for i in range(text.num_chunks if step > 1 else 0):
            chunks[i] = chunks[(i + 1) * step - 1]
        return 0

    cdef const int32_t* _scale(self) noexcept nogil:
        """Merge the matches of all groups, in units of `block_size`."""
        cdef const TierGroup* group
        cdef int32_t i, medium
        for i in range(self.num_replicas):
            group = &self._groups[self._group_of[i]]
            for medium in range(NUM_MEDIA):
                self._scaled[medium * self.num_replicas + i] = group.scale * (
                    <TierHolders>group.holders).found[medium * self.num_replicas + i]
        return self._scaled

    # ---- checks

    cdef int check_replica(self, int32_t replica) except -1 nogil:
        cdef int32_t i
        for i in range(self._first_of[replica], self._first_of[replica + 1]):
            if (<CacheLog>self._followed[i].log).size > 0:
                return broken("LiveTiers: a tier has changed unseen")
        return 0

    def check(self):
        """Raise RuntimeError unless the index equals a plain walk over all that is followed (for tests)."""
        cdef int32_t i, k
        cdef const Followed* it
        cdef TierHolders holders
        for i in range(self._num_groups):
            (<TierHolders>self._groups[i].holders).check()
        for i in range(self._num_followed):
            it = &self._followed[i]
            holders = <TierHolders>self._groups[it.group].holders
            found = set().union(*((<ChunkStore>self._followed[k].store).hashes() for k in range(it.begin, it.end)))
            if found != holders.held_by(it.medium, it.holder):
                raise RuntimeError(f"LiveTiers: medium {it.medium} of {it.holder} has {len(found)} chunks, the index "
                                   f"knows {len(holders.held_by(it.medium, it.holder))}, not the same")
