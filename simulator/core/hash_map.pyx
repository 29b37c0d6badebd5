"""A map from 64-bit hashes to indices."""
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken, out_of_memory

# The slots of a map before its first key: memory only for maps that are used. Never written to.
cdef HashSlot NO_KEY
NO_KEY.key, NO_KEY.value = 0, -1


cdef class HashMap:
    """Hashes (uint64) to indices (int32, >= 0)."""

    def __cinit__(self):
        self._slots = &NO_KEY

    def __dealloc__(self):
        if self._mask > 0:
            free(self._slots)

    cdef int32_t remove(self, uint64_t key) noexcept nogil:
        cdef HashSlot* slots = self._slots
        cdef uint64_t mask = self._mask, hole = key & mask, i
        while slots[hole].value >= 0 and slots[hole].key != key:
            hole = (hole + 1) & mask
        cdef int32_t value = slots[hole].value
        if value < 0:
            return -1
        # Close the gap: pull back each follower with a home not after the hole, so that no probe stops short.
        i = hole
        while True:
            i = (i + 1) & mask
            if slots[i].value < 0:
                break
            if ((i - slots[i].key) & mask) >= ((i - hole) & mask):
                slots[hole] = slots[i]
                hole = i
        slots[hole].value = -1
        self.size -= 1
        return value

    cdef int reserve(self, int64_t num_keys) except -1 nogil:
        cdef uint64_t num_slots = self._mask + 1
        while num_slots < 2 * <uint64_t>num_keys:
            num_slots *= 2
        return self._resize(num_slots) if num_slots > self._mask + 1 else 0

    cdef int _resize(self, uint64_t num_slots) except -1 nogil:
        cdef HashSlot* slots = <HashSlot*>malloc(num_slots * sizeof(HashSlot))
        if slots == NULL:
            return out_of_memory()
        cdef uint64_t i, k, mask = num_slots - 1
        for i in range(num_slots):
            slots[i].value = -1
        for k in range(self._mask + 1):
            if self._slots[k].value >= 0:
                i = self._slots[k].key & mask
                while slots[i].value >= 0:
                    i = (i + 1) & mask
                slots[i] = self._slots[k]
        if self._mask > 0:
            free(self._slots)
        self._slots = slots
        self._mask = mask
        return 0

    cdef void clear(self) noexcept nogil:
        cdef uint64_t i
        for i in range(self._mask + 1 if self.size > 0 else 0):
            self._slots[i].value = -1
        self.size = 0

    cpdef int check(self) except -1 nogil:
        cdef uint64_t i
        cdef int64_t found = 0
        for i in range(self._mask + 1):
            if self._slots[i].value < 0:
                continue
            found += 1
            if self.get(self._slots[i].key) != self._slots[i].value:
                return broken("HashMap: a key cannot be reached from its home position")
        if found != self.size:
            return broken("HashMap: size is not the number of keys")
        return 0

    def keys(self):
        """Return the keys, in no special order."""
        cdef uint64_t i
        return [self._slots[i].key for i in range(self._mask + 1) if self._slots[i].value >= 0]

    def values(self):
        """Return the values, in no special order."""
        cdef uint64_t i
        return [self._slots[i].value for i in range(self._mask + 1) if self._slots[i].value >= 0]
