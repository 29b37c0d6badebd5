"""The set of replicas that hold each block of text; a prompt is matched against all replicas at once."""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.arithmetic cimport lowest_bit
from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_SETS = 1024


cdef inline void write_count(int32_t* matched, uint64_t replicas, int32_t count) noexcept nogil:
    """Write a count at the bits of a word; where nearly all replicas have a prompt, words are full."""
    cdef int32_t i
    if replicas == ~<uint64_t>0:
        for i in range(64):
            matched[i] = count
        return
    while replicas:
        matched[lowest_bit(replicas)] = count
        replicas &= replicas - 1


@cython.final
cdef class HolderSets:
    """Sets of the replicas 0 .. num_replicas - 1, all empty at first."""

    def __cinit__(self, int32_t num_replicas):
        self.num_replicas = num_replicas
        self.num_words = (num_replicas + 63) // 64
        self._holder_of = HashMap()
        self._alive = <uint64_t*>calloc(self.num_words, sizeof(uint64_t))
        if self._alive == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._words)
        free(self._free)
        free(self._alive)

    cdef int add(self, uint64_t hash, int32_t replica) except -1 nogil:
        cdef int32_t found = self._holder_of.get(hash), other = -1
        cdef uint64_t* words
        if found == replica:
            return 0
        if found < 0:
            return self._holder_of.put(hash, replica)
        if found < self.num_replicas:
            if self._num_free == 0:
                self._grow()
            other, found = found, self.num_replicas + self._free[self._num_free - 1]
            self._holder_of.put(hash, found)
            self._num_free -= 1
        words = &self._words[<int64_t>(found - self.num_replicas) * self.num_words]
        if other >= 0:
            memset(words, 0, self.num_words * sizeof(uint64_t))
            words[other // 64] |= <uint64_t>1 << (other % 64)
        words[replica // 64] |= <uint64_t>1 << (replica % 64)
        return 0

    cdef void remove(self, uint64_t hash, int32_t replica) noexcept nogil:
        cdef int32_t found = self._holder_of.get(hash), k
        cdef uint64_t* words
        if found < self.num_replicas:
            if found == replica:
                self._holder_of.remove(hash)
            return
        words = &self._words[<int64_t>(found - self.num_replicas) * self.num_words]
        words[replica // 64] &= ~(<uint64_t>1 << (replica % 64))
        for k in range(self.num_words):
            if words[k] != 0:
                return
        self._holder_of.remove(hash)
        self._free[self._num_free] = found - self.num_replicas
        self._num_free += 1

    cdef bint _holds(self, uint64_t hash, int32_t replica) noexcept nogil:
        cdef int32_t found = self._holder_of.get(hash)
        if found < self.num_replicas:
            return found == replica
        return self._words[<int64_t>(found - self.num_replicas) * self.num_words + replica // 64] >> (
            replica % 64) & 1

    cdef int match(self, const uint64_t* hashes, int32_t num_blocks, int32_t* matched) noexcept nogil:
        cdef int32_t found, i, k
        cdef uint64_t lost, any_lost, any_left, word
        cdef const uint64_t* words
        memset(matched, 0, self.num_replicas * sizeof(int32_t))
        memset(self._alive, 0xFF, self.num_words * sizeof(uint64_t))
        for i in range(num_blocks + 1):
            found = self._holder_of.get(hashes[i]) if i < num_blocks else -1
            if 0 <= found < self.num_replicas:
                return self._match_alone(hashes, num_blocks, i, found, matched)
            words = &self._words[<int64_t>(found - self.num_replicas) * self.num_words] if found >= 0 else NULL
            any_lost = any_left = 0
            for k in range(self.num_words if words != NULL and i > 0 else 0):
                any_lost |= self._alive[k] & ~words[k]
            if words != NULL and i > 0 and any_lost == 0:       # most often all that had the block before have this
                continue
            for k in range(self.num_words):
                word = words[k] if words != NULL else 0
                lost = self._alive[k] & ~word if i > 0 else 0
                self._alive[k] &= word
                any_left |= self._alive[k]
                write_count(matched + 64 * k, lost, i)
            if any_left == 0:
                return 0
        return 0

    cdef int32_t list_holders(self, uint64_t hash, int32_t* found) noexcept nogil:
        cdef int32_t holder = self._holder_of.get(hash), size = 0, k
        cdef const uint64_t* words
        cdef uint64_t left
        if holder < self.num_replicas:
            found[0] = holder
            return holder >= 0
        words = &self._words[<int64_t>(holder - self.num_replicas) * self.num_words]
        for k in range(self.num_words):
            left = words[k]
            while left:
                found[size] = 64 * k + lowest_bit(left)
                left &= left - 1
                size += 1
        return size

    cdef int _match_alone(self, const uint64_t* hashes, int32_t num_blocks, int32_t first, int32_t replica,
                          int32_t* matched) noexcept nogil:
        cdef bint is_alive = self._alive[replica // 64] >> (replica % 64) & 1
        cdef int32_t i = first, k
        cdef uint64_t lost
        for k in range(self.num_words if first > 0 else 0):
            lost = self._alive[k]
            while lost:
                matched[64 * k + lowest_bit(lost)] = first
                lost &= lost - 1
        if is_alive:
            while i < num_blocks and self._holds(hashes[i], replica):
                i += 1
            matched[replica] = i
        return 0

    cpdef int check(self) except -1:
        cdef HashMap by_hash = self._holder_of
        cdef int32_t spare = 64 * self.num_words - self.num_replicas, each, k
        cdef uint64_t held
        by_hash.check()
        sets = [value - self.num_replicas for value in by_hash.values() if value >= self.num_replicas]
        if sorted(sets + [self._free[k] for k in range(self._num_free)]) != list(range(self._num_sets)):
            return broken("HolderSets: a set has several hashes, or is free and has one, or is lost")
        for each in sets:
            held = 0
            for k in range(self.num_words):
                held |= self._words[<int64_t>each * self.num_words + k]
            if held == 0:
                return broken("HolderSets: nobody holds a block that has a set")
            if spare > 0 and self._words[(each + <int64_t>1) * self.num_words - 1] >> (64 - spare):
                return broken("HolderSets: a replica that there is not holds a block")
        return 0

    cdef int _grow(self) except -1 nogil:
        cdef int32_t room = max(2 * self._num_sets, <int32_t>FIRST_SETS), i
        resize(&self._words, <int64_t>room * self.num_words * sizeof(uint64_t))
        resize(&self._free, room * sizeof(int32_t))
        for i in range(room - 1, self._num_sets - 1, -1):
            self._free[self._num_free] = i
            self._num_free += 1
        self._num_sets = room
        return 0

    # The face for tests and exploration.

    def note(self, uint64_t hash, int32_t replica, bint is_held):
        """Note that a replica holds a block, or no longer holds it."""
        if is_held:
            self.add(hash, replica)
        else:
            self.remove(hash, replica)

    def matches(self, hashes):
        """Return how many of the leading blocks each replica holds."""
        cdef int32_t count = len(hashes), i
        cdef uint64_t* given = <uint64_t*>calloc(count + 1, sizeof(uint64_t))
        cdef int32_t* matched = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if given == NULL or matched == NULL:
            raise MemoryError()
        for i in range(count):
            given[i] = hashes[i]
        self.match(given, count, matched)
        found = [matched[i] for i in range(self.num_replicas)]
        free(given)
        free(matched)
        return found

    def held_by(self, int32_t replica):
        """Return the set of the hashes of blocks that a replica holds."""
        return {hash for hash in self._holder_of.keys() if self._holds(hash, replica)}
