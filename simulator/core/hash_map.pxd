"""A map from 64-bit hashes to indices: open addressing, linear probing, no tombstones.

The keys must be well mixed already: their low bits are the home position unchanged. Every key is allowed, 0 too;
values are >= 0.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    FIRST_KEYS = 32             # room for keys at first


cdef struct HashSlot:           # 16 bytes, so that none straddles a cache line
    uint64_t key
    int32_t value               # -1: the slot is free
    int32_t spare


@cython.final
cdef class HashMap:
    cdef HashSlot* _slots
    cdef uint64_t _mask         # number of slots - 1; a power of two less one; 0: no key yet
    cdef readonly int64_t size  # keys in it

    # The value of a key; -1 if it is absent.
    cdef inline int32_t get(self, uint64_t key) noexcept nogil:
        cdef uint64_t i = key & self._mask
        while self._slots[i].value >= 0 and self._slots[i].key != key:
            i = (i + 1) & self._mask
        return self._slots[i].value

    # Give a key this value (>= 0). Only a new key can need memory; -1 without it, and nothing changed.
    cdef inline int put(self, uint64_t key, int32_t value) except -1 nogil:
        cdef uint64_t i = key & self._mask
        while self._slots[i].value >= 0 and self._slots[i].key != key:
            i = (i + 1) & self._mask
        if self._slots[i].value < 0:
            if 2 * <uint64_t>self.size >= self._mask:       # half full: probes would grow long
                self.reserve(max(2 * self.size, <int64_t>FIRST_KEYS))
                return self.put(key, value)
            self.size += 1
        self._slots[i].key = key
        self._slots[i].value = value
        return 0

    # Give a key that is there another value.
    cdef inline void replace(self, uint64_t key, int32_t value) noexcept nogil:
        cdef uint64_t i = key & self._mask
        while self._slots[i].key != key:
            i = (i + 1) & self._mask
        self._slots[i].value = value

    # Remove a key and return the value it had; -1 if it is absent.
    cdef int32_t remove(self, uint64_t key) noexcept nogil

    # Make room for that many keys without another allocation. -1 without memory, and nothing changed.
    cdef int reserve(self, int64_t num_keys) except -1 nogil

    # Forget every key; keeps the memory.
    cdef void clear(self) noexcept nogil

    cdef int _resize(self, uint64_t num_slots) except -1 nogil

    # Raise RuntimeError if a key cannot be reached from its home position or the size is wrong.
    cpdef int check(self) except -1 nogil
