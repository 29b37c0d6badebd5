"""Blocks of the requests that each replica has now: equal blocks of several requests count once.

Source of the rules: decisions of ai-dynamo-runtime 1.6.1, `SelectionService`, recorded and explained in formulas.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.draws cimport mix
from simulator.core.memory cimport resize
from simulator.kv.prompt_hashes cimport read_hashes

cdef enum:
    FIRST_BLOCKS = 1024

cdef uint64_t SPREAD = 0x9FB21C651E98DF25       # odd, without a pattern, as Weyl steps are


cdef inline uint64_t with_replica(uint64_t hash, int32_t replica) noexcept nogil:
    return mix(hash + <uint64_t>(replica + 1) * SPREAD)


@cython.final
cdef class LiveBlocks:
    """Blocks of the live requests of replicas, none at first.

    context : simulator.routing.base.RoutingContext: workload, content, block size and replicas.
    is_shared : equal blocks of several requests count once; else each request has blocks of its own.
    """

    def __cinit__(self, context, bint is_shared=True):
        cdef const Request[::1] requests = context.workload.requests
        self.block_size, self._num_replicas = context.block_size, context.view.num_replicas
        self._content, self._owner, self._row, self._free = None, context.workload, -1, -1
        if is_shared:
            self._content = context.content
        self._requests = &requests[0] if len(requests) else NULL
        self._holders, self._index_of = HolderSets(self._num_replicas), HashMap()
        self._own = <OwnBlocks*>calloc(max(len(requests), 1), sizeof(OwnBlocks))
        self._count = <int64_t*>calloc(self._num_replicas, sizeof(int64_t))
        self._discount = <int64_t*>calloc(self._num_replicas, sizeof(int64_t))
        if self._own == NULL or self._count == NULL or self._discount == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._shared)
        free(self._own)
        free(self._count)
        free(self._discount)
        free(self._hashes)

    cdef int match(self, int32_t row, int32_t* matched) except -1 nogil:
        self._read(row)
        return self._holders.match(self._hashes, self._public, matched)

    cdef int add(self, int32_t row, int32_t replica) except -1 nogil:
        cdef int32_t i, index
        cdef uint64_t key
        self._read(row)
        for i in range(self._public):
            key = with_replica(self._hashes[i], replica)
            index = self._index_of.get(key)
            if index < 0:
                index = self._new_block()
                self._index_of.put(key, index)
                self._holders.add(self._hashes[i], replica)
                self._free = self._shared[index].next
                self._shared[index].users = 0
                self._shared[index].discount = 0
                self._count[replica] += 1
            self._shared[index].users += 1
        self._own[row].num_blocks, self._own[row].num_outputs, self._own[row].discount = self._private, 0, 0
        self._count[replica] += self._private
        return 0

    cdef int remove(self, int32_t row, int32_t replica) except -1 nogil:
        cdef OwnBlocks* own = &self._own[row]
        cdef int32_t i, index
        cdef uint64_t key
        self._read(row)
        for i in range(self._public):
            key = with_replica(self._hashes[i], replica)
            index = self._index_of.get(key)
            self._shared[index].users -= 1
            if self._shared[index].users == 0:
                self._count[replica] -= 1
                self._discount[replica] -= self._shared[index].discount
                self._index_of.remove(key)
                self._holders.remove(self._hashes[i], replica)
                self._shared[index].next, self._free = self._free, index
        self._count[replica] -= own.num_blocks
        self._discount[replica] -= own.discount
        own.num_blocks = own.num_outputs = 0
        own.discount = 0
        return 0

    cdef int add_output(self, int32_t row, int32_t replica, double weight) except -1 nogil:
        cdef OwnBlocks* own = &self._own[row]
        cdef int64_t discount, before = own.discount
        cdef int32_t i, index
        own.num_blocks += 1
        own.num_outputs += 1
        self._count[replica] += 1
        if weight < 0:
            return 0
        discount = (<int64_t>1 << WEIGHT_BITS) - <int64_t>(weight * (1 << WEIGHT_BITS) + 0.5)
        own.discount = own.num_blocks * discount
        self._discount[replica] += own.discount - before
        self._read(row)
        for i in range(self._public):
            index = self._index_of.get(with_replica(self._hashes[i], replica))
            if self._shared[index].users == 1:
                self._discount[replica] += discount - self._shared[index].discount
                self._shared[index].discount = discount
        return 0

    cdef int _read(self, int32_t row) except -1 nogil:
        """Take the hashes of a prompt."""
        cdef int32_t total = self.num_blocks(row)
        if row == self._row:
            return 0
        self._row = -1
        self._public = 0 if self._content is None else min(
            total, self._content.public_tokens(row) // self.block_size)
        self._private = total - self._public
        if self._public > self._hash_room:
            resize(&self._hashes, 2 * self._public * sizeof(uint64_t))
            self._hash_room = 2 * self._public
        if self._public > 0:
            read_hashes(self._content, row, self.block_size, self._public, self._hashes)
        self._row = row
        return 0

    cdef int32_t _new_block(self) except -1 nogil:
        """Return the first unused element, which stays unused."""
        cdef int32_t after, i
        if self._free < 0:
            after = max(2 * self._room, FIRST_BLOCKS)
            resize(&self._shared, after * sizeof(LiveBlock))
            for i in range(self._room, after):
                self._shared[i].next = i + 1 if i + 1 < after else -1
            self._free, self._room = self._room, after
        return self._free

    cpdef int check(self) except -1:
        """Raise RuntimeError if sets and counts do not agree."""
        cdef int32_t i, unused = 0
        cdef int64_t total = 0
        self._holders.check()
        self._index_of.check()
        i = self._free
        while i >= 0:
            unused += 1
            i = self._shared[i].next
        if self._index_of.size + unused != self._room:
            raise RuntimeError("LiveBlocks: a block is neither at a replica nor unused")
        for i in range(self._num_replicas):
            total += self._count[i]
            if not 0 <= self._discount[i] <= self._count[i] << WEIGHT_BITS:
                raise RuntimeError("LiveBlocks: the blocks of a replica weigh less than nothing, or too much")
        for i in range(len(self._owner.requests)):
            total -= self._own[i].num_blocks
        if total != self._index_of.size:
            raise RuntimeError("LiveBlocks: blocks of the replicas are miscounted")
        return 0
