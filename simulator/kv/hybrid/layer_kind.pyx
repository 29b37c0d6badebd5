"""A kind of layers: tokens that they still need, blocks that enter the prefix cache, and the rule of a hit."""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.returning cimport private_hash

# Odd, without a pattern in its bits: 2**64 / x for the positive root of x**2 = x + 1.
cdef uint64_t SALT = 0x9E3779B97F4A7C15


cdef uint64_t own_hash(int32_t row, int32_t index) noexcept nogil:
    cdef uint64_t hash = private_hash(row, index) * SALT
    hash ^= hash >> 32
    return hash if hash != 0 else 1


cdef Tails tails_of(int32_t length, int32_t block_size, int32_t unit, int64_t retention, bint drops) noexcept nogil:
    cdef Tails tails
    tails.length, tails.shift, tails.earlier = length, drops, False
    tails.segment = <int32_t>((unit if retention < 0 else retention) // block_size)
    tails.at_ends = retention >= 0
    tails.is_all = retention != 0 and length >= tails.segment
    return tails


cdef Run next_tail(const Tails* tails, int32_t block_size, int32_t begin, const Ends* ends) noexcept nogil:
    cdef Run run = Run(begin, INT32_MAX)
    cdef int32_t end, i
    if tails.is_all:
        return run
    run.begin = INT32_MAX
    if tails.segment > 0 and tails.length > 0:
        end = (max(begin - tails.shift, 0) // tails.segment + 1) * tails.segment + tails.shift
        run = Run(max(end - tails.length, begin), end)
    for i in range(4 if tails.at_ends and tails.length > 0 else 0):
        end = <int32_t>((ends.prompt if i == 0 else ends.longer if i == 1 else ends.junction) // block_size)
        if i >= 2 and ends.junction == 0 or i == 3 and not tails.earlier:
            continue
        end += tails.shift - (i == 3)
        if end > begin and max(end - tails.length, begin) < run.begin:
            run = Run(max(end - tails.length, begin), end)
    return run


@cython.final
cdef class Search:
    """Lookup of a request's text in a prefix cache that several groups share.

    prefixes, content : the cache, and the texts.
    num_groups : block tables of a sequence.
    grain : tokens of the blocks over which hashes are chained.
    plain : group that lists its blocks under the hashes of `content`, without a salt.
    last_block : see layer_kind.pxd.
    """

    def __cinit__(self, PrefixCache prefixes, Content content, int32_t num_groups, int32_t grain, int32_t plain,
                  int32_t last_block):
        cdef int32_t group
        self.prefixes, self.content = prefixes, content
        self.num_groups, self.grain, self.last_block = num_groups, grain, last_block
        self.salts = <uint64_t*>calloc(num_groups, sizeof(uint64_t))
        self.blocks = <int32_t**>calloc(num_groups, sizeof(int32_t*))
        self.sizes = <int32_t*>calloc(num_groups, sizeof(int32_t))
        if self.salts == NULL or self.blocks == NULL or self.sizes == NULL:
            raise MemoryError()
        for group in range(num_groups):
            self.salts[group] = 0 if group == plain else <uint64_t>(group + 1) * SALT

    def __dealloc__(self):
        cdef int32_t group
        for group in range(self.num_groups if self.blocks != NULL else 0):
            free(self.blocks[group])
        free(self.blocks)
        free(self.salts)
        free(self.sizes)
        free(self._hashes)

    cdef int begin(self, int32_t row, int64_t num_tokens) except -1 nogil:
        cdef int64_t public_tokens = self.public_tokens(row)
        cdef int32_t room, group
        self.row = row
        self.reach = num_tokens
        if not self.content.has_run(row):
            self.reach = min(num_tokens, public_tokens)
        self._num_public = <int32_t>(min(public_tokens, num_tokens) // self.grain)
        self._num_hashes = self._num_first = 0
        memset(&self._cursor, 0, sizeof(self._cursor))
        room = <int32_t>(num_tokens // self.grain) + 1
        if room > self._room:
            for group in range(self.num_groups):
                resize(&self.blocks[group], 2 * <size_t>room * sizeof(int32_t))
            resize(&self._hashes, 2 * <size_t>room * sizeof(uint64_t))
            self._room = 2 * room
        return self._begin_hashes() if self._num_public > 0 and self.ahead == 0 else 0

    cdef int _begin_hashes(self) except -1 nogil:
        """Take the hashes of the first segment of the prompt, which are remembered."""
        cdef const uint64_t* first = self.content.first_hashes(self.row, self.grain, &self._num_first)
        self._num_first = min(self._num_first, self._num_public)
        if self._num_first > 0:
            memcpy(self._hashes, first, self._num_first * sizeof(uint64_t))
            self._num_hashes = self._num_first
            self._cursor = self.content.behind(self.row, self.grain, self._hashes, self._num_first)
        return 0

    cdef int64_t public_tokens(self, int32_t row) noexcept nogil:
        return max(self.content.public_tokens(row) - self.ahead, 0)

    cdef uint64_t _hash_at(self, int64_t end) noexcept nogil:
        cdef int32_t index = <int32_t>(end // self.grain) - 1
        if index >= self._num_public:
            return own_hash(self.row, index)
        while self._num_hashes <= index:
            self._hashes[self._num_hashes] = self.content.next_hash(self.row, self.grain, self.ahead, &self._cursor)
            self._num_hashes += 1
        return self._hashes[index]

    cdef void cursor_at(self, int64_t num_tokens, Cursor* cursor) noexcept nogil:
        cdef int32_t _
        if num_tokens >= self.grain and num_tokens // self.grain == self._num_hashes:
            cursor[0] = self._cursor
            return
        if self.grain <= num_tokens <= <int64_t>self._num_first * self.grain:
            cursor[0] = self.content.behind(self.row, self.grain, self._hashes, <int32_t>(num_tokens // self.grain))
            return
        for _ in range(<int32_t>(num_tokens // self.grain)):
            self.content.next_hash(self.row, self.grain, self.ahead, cursor)

    cdef bint has_until(self, LayerKind kind, int32_t index, int64_t end) noexcept nogil:
        cdef uint64_t hash = self._hash_at(end)
        cdef int32_t i, group, block
        for i in range(kind.num_groups):
            group = kind.groups[i]
            block = self.prefixes.find(salted(hash, self.salts[group]))
            if block == 0:
                return False
            self.blocks[group][index] = (
                block if block <= self.last_block else self.prefixes.blocks[block].references)
        return True

    cdef void close(self, LayerKind kind, int32_t begin, int32_t size) noexcept nogil:
        cdef int32_t i
        for i in range(kind.num_groups):
            if begin > 0:
                memset(self.blocks[kind.groups[i]], 0, begin * sizeof(int32_t))
            self.sizes[kind.groups[i]] = size


cdef class LayerKind:
    """Base of all kinds; see layer_kind.pxd for the contract.

    block_size : tokens of a block.
    unit : tokens of which hits are multiples: of all block sizes, or, where hits end inside blocks, a divisor of all.
    groups : numbers of the groups of this kind.
    """

    def __cinit__(self, int32_t block_size, int32_t unit, groups, *_, **__):
        cdef int32_t i
        self.block_size, self.unit = block_size, unit
        self.num_groups = len(groups)
        self.groups = <int32_t*>calloc(self.num_groups, sizeof(int32_t))
        if self.groups == NULL:
            raise MemoryError()
        for i in range(self.num_groups):
            self.groups[i] = groups[i]
        self.most_blocks = INT32_MAX
        self.takes_blocks, self.frees_at = True, -1

    def __dealloc__(self):
        free(self.groups)

    def numbers(self):
        """Return the numbers of the groups of this kind."""
        return [self.groups[i] for i in range(self.num_groups)]

    def givers(self):
        """Return the groups in which a visit looks for blocks to give back."""
        return self.numbers()[:1] if self.in_a_row else self.numbers()

    cdef int64_t outdated(self, int64_t tokens) noexcept nogil:
        return 0

    cdef int64_t steady_until(self, const Table* table, int64_t computed, int64_t settled) noexcept nogil:
        return INT64_MAX

    cdef Run kept(self, int32_t begin, const Ends* ends) noexcept nogil:
        return Run(begin, INT32_MAX)

    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil:
        return 0
