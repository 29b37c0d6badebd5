"""LoRA adapters that a replica of BLIS holds, and the adapter being loaded beside its iterations.

Source: inference-sim (BLIS) at f90a1e3a, sim/lora.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS


@cython.final
cdef class AdapterLoads:
    """Adapters of one replica.

    load_ns : int64 (a,), load time of each adapter. capacity : adapters that are loaded at once.
    """

    def __cinit__(self, const int64_t[::1] load_ns, int32_t capacity):
        self._owner, self._num_adapters, self._capacity = load_ns, len(load_ns), capacity
        self._load_ns = &load_ns[0] if len(load_ns) else NULL
        self._used = <int64_t*>calloc(self._num_adapters + 1, sizeof(int64_t))
        self._is_pinned = <int8_t*>calloc(self._num_adapters + 1, sizeof(int8_t))
        if self._used == NULL or self._is_pinned == NULL:
            raise MemoryError()
        self.loading, self.done_ns = -1, NEVER_NS

    def __dealloc__(self):
        free(self._used)
        free(self._is_pinned)

    def counts(self):
        """Return {loads, reads, evictions}, in adapters; each load reads the adapter anew."""
        return {"loads": self.loads, "reads": self.loads, "evictions": self.evictions}

    cdef void settle(self, int64_t now_ns) noexcept nogil:
        if self.done_ns <= now_ns:
            self.use(self.loading)
            self.loading, self.done_ns = -1, NEVER_NS

    cdef void forget(self) noexcept nogil:
        memset(self._used, 0, self._num_adapters * sizeof(int64_t))
        self._num_resident, self.loading, self.done_ns = 0, -1, NEVER_NS

    cdef void unpin_all(self) noexcept nogil:
        memset(self._is_pinned, 0, self._num_adapters)

    cdef void load(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        cdef int32_t oldest = -1, i
        if self.loading >= 0 or self._used[adapter] > 0:
            return
        if self._num_resident >= self._capacity:
            for i in range(self._num_adapters):
                if self._used[i] > 0 and not self._is_pinned[i] and (
                        oldest < 0 or self._used[i] < self._used[oldest]):
                    oldest = i
            if oldest < 0:
                return                                  # all are in use: the head of the queue waits for a free one
            self._used[oldest] = 0
            self._num_resident -= 1
            self.evictions += 1
        self._num_resident += 1
        self.loads += 1
        self.loading, self.done_ns = adapter, now_ns + self._load_ns[adapter]
