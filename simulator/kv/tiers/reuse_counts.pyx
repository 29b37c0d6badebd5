"""How often each of the recently offered chunks was offered."""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.index_list cimport new_list

MOST_COUNTED = 64_000           # chunks: vLLM 0.32.0, vllm/v1/kv_offload/cpu/manager.py


@cython.final
cdef class ReuseCounts:
    """Counts of the chunks offered last; a chunk offered longer ago begins at 0.

    most : chunks that are counted.
    """

    def __cinit__(self, int32_t most=MOST_COUNTED):
        self._most = most
        self._entry_of, self._links, self._by_age = HashMap(), IndexLinks(), new_list()
        self._links.grow(most)
        self._hashes = <uint64_t*>malloc(most * sizeof(uint64_t))
        self._counts = <int32_t*>malloc(most * sizeof(int32_t))
        if self._hashes == NULL or self._counts == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._hashes)
        free(self._counts)

    cdef int32_t count(self, uint64_t hash) except -1 nogil:
        cdef int32_t entry = self._entry_of.get(hash)
        if entry >= 0:
            self._links.remove(&self._by_age, entry)
        elif self._by_age.size < self._most:
            entry = self._by_age.size
            self._counts[entry] = 0
        else:
            entry = self._links.pop_front(&self._by_age)
            self._entry_of.remove(self._hashes[entry])
            self._counts[entry] = 0
        self._links.push_back(&self._by_age, entry)
        self._entry_of.put(hash, entry)
        self._hashes[entry] = hash
        self._counts[entry] += 1
        return self._counts[entry]

    def clear(self):
        """Forget all counts."""
        self._entry_of.clear()
        while self._links.pop_front(&self._by_age) >= 0:
            pass
