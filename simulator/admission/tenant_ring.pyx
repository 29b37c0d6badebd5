"""A set of small integers that finds its next member, as a tree of bit words."""
cimport cython
from libc.stdlib cimport calloc, free

from simulator.core.arithmetic cimport lowest_bit
from simulator.core.errors cimport broken


cdef inline uint64_t bit(int32_t i) noexcept nogil:
    return <uint64_t>1 << (i & 63)


@cython.final
cdef class TenantRing:
    """Members of 0 .. universe - 1, none at first."""

    def __cinit__(self, int32_t universe):
        cdef int32_t words = universe, total = 0
        if universe < 1:
            raise ValueError(f"universe must be >= 1, found {universe}")
        self.universe = universe
        while True:
            words = (words + 63) >> 6
            self._level[self._num_levels] = total
            self._num_levels += 1
            total += words
            if words == 1:
                break
        self._words = <uint64_t*>calloc(total, sizeof(uint64_t))
        if self._words == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._words)

    cdef void add(self, int32_t member) noexcept nogil:
        cdef int32_t k
        for k in range(self._num_levels):
            self._words[self._level[k] + (member >> 6)] |= bit(member)
            member >>= 6

    cdef void discard(self, int32_t member) noexcept nogil:
        cdef int32_t k
        cdef uint64_t* word
        for k in range(self._num_levels):
            word = &self._words[self._level[k] + (member >> 6)]
            word[0] &= ~bit(member)
            if word[0] != 0:
                return
            member >>= 6

    cdef int32_t first_from(self, int32_t least) noexcept nogil:
        cdef int32_t k, num = self.universe     # bits of level k
        cdef uint64_t word
        for k in range(self._num_levels):
            if least >= num:
                return -1
            word = self._words[self._level[k] + (least >> 6)] >> (least & 63)
            if word != 0:
                least += lowest_bit(word)
                break
            least = (least >> 6) + 1
            num = (num + 63) >> 6
        else:
            return -1
        while k > 0:                            # down again to the lowest member below that bit
            k -= 1
            least = least << 6 | lowest_bit(self._words[self._level[k] + least])
        return least

    cdef int32_t next_in(self, int32_t begin, int32_t end, int32_t last) noexcept nogil:
        cdef int32_t found = self.first_from(last + 1)
        if not 0 <= found < end:
            found = self.first_from(begin)
        return found if found < end else -1

    cpdef int check(self) except -1 nogil:
        cdef int32_t k, i, num = self.universe, words       # bits and words of level k
        cdef uint64_t above
        for k in range(self._num_levels):
            words = (num + 63) >> 6
            if num & 63 and self._words[self._level[k] + words - 1] >> (num & 63):
                return broken("TenantRing: a member is beyond the universe")
            for i in range(words if k + 1 < self._num_levels else 0):
                above = self._words[self._level[k + 1] + (i >> 6)] & bit(i)
                if (above != 0) != (self._words[self._level[k] + i] != 0):
                    return broken("TenantRing: a word does not agree with its bit of the level above")
            num = words
        return 0

    # The face for tests and exploration.

    def put_in(self, member):
        """Add a member."""
        self.add(member)

    def take_out(self, member):
        """Remove a member, if it is one."""
        self.discard(member)

    def after(self, last, begin, end):
        """Return the next member after `last` in begin .. end - 1, cyclically; -1 if there is none."""
        return self.next_in(begin, end, last)
