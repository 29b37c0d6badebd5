"""LoRA adapters that a worker holds, on the accelerator and in host memory.

An adapter that a batch needs is loaded before it: from disk to host memory, unless it is there, and from host memory
to the accelerator. Both levels evict the least recently used adapter; of several that one batch used last, the one
with the lowest number (upstream iterates a set, which has no order). Source: vLLM 0.32.0,
vllm/lora/worker_manager.py, LRUCacheWorkerLoRAManager, vllm/lora/model_manager.py, LRUCacheLoRAModelManager.

In SGLang requests without an adapter need a slot as well, taken at the start, without a load; it is evicted only where
no adapter can be. All adapters are in host memory. Source: sglang 0.5.23, lora/mem_pool.py, prepare_lora_batch;
lora/lora_manager.py, fetch_new_loras.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython


@cython.final
cdef class AdapterSlots:
    """Adapters of one replica.

    num_adapters : adapters named by requests. max_loras, max_cpu_loras : slots on the accelerator, in host memory.
    base : the one of num_adapters of requests without an adapter; -1: they need no slot.
    """

    def __cinit__(self, int32_t num_adapters, int32_t max_loras, int32_t max_cpu_loras, int32_t base=-1):
        cdef int level
        self._base = base
        self._num_adapters = num_adapters
        self._limits[0], self._limits[1] = max_loras, max(max_cpu_loras, max_loras)
        self.limit = max_loras
        self._used = <int64_t*>calloc(num_adapters + 1, sizeof(int64_t))
        for level in range(2):
            self._limits[level] = min(self._limits[level], max(num_adapters, 1))
            self._held[level] = <int32_t*>calloc(self._limits[level], sizeof(int32_t))
        if self._used == NULL or self._held[0] == NULL or self._held[1] == NULL:
            raise MemoryError()
        self.forget()

    def __dealloc__(self):
        free(self._used)
        free(self._held[0])
        free(self._held[1])

    def counts(self):
        """Return {loads, reads, evictions}: loads to the accelerator, disk reads, evictions from the accelerator."""
        return {"loads": self.loads, "reads": self.reads, "evictions": self.evictions}

    cdef void forget(self) noexcept nogil:
        self._num_held[0] = self._num_held[1] = 0
        memset(self._used, 0, self._num_adapters * sizeof(int64_t))
        if self._base >= 0:
            self._used[self._base] = 1
            self._put(0, self._base)

    cdef bint _holds(self, int level, int32_t adapter) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_held[level]):
            if self._held[level][i] == adapter:
                return True
        return False

    cdef void _load(self, int32_t adapter, BatchShape* shape) noexcept nogil:
        if adapter == self._base:
            self.evictions += self._put(0, adapter)
            return
        if self._base < 0 and not self._holds(1, adapter):
            self._put(1, adapter)
            self.reads += 1
            shape.num_reads += 1
        self.evictions += self._put(0, adapter)
        self.loads += 1
        shape.num_loads += 1

    cdef bint _put(self, int level, int32_t adapter) noexcept nogil:
        """Add an adapter; return True if another one is evicted for it."""
        cdef int32_t* held = self._held[level]
        cdef int32_t oldest = -1, i
        if self._num_held[level] < self._limits[level]:
            held[self._num_held[level]] = adapter
            self._num_held[level] += 1
            return False
        for i in range(self._num_held[level]):
            if oldest < 0 or self._goes_before(held[i], held[oldest]):
                oldest = i
        held[oldest] = adapter
        return True

    cdef bint _goes_before(self, int32_t adapter, int32_t other) noexcept nogil:
        cdef bint is_needed = self._used[adapter] == self._batch, is_other_needed = self._used[other] == self._batch
        if is_needed != is_other_needed:
            return is_other_needed
        if adapter == self._base or other == self._base:
            return other == self._base
        return self._used[adapter] < self._used[other] or (
            self._used[adapter] == self._used[other] and adapter < other)
