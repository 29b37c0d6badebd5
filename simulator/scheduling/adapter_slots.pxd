"""LoRA adapters that a worker holds, on the accelerator and in host memory."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.batch cimport BatchShape


@cython.final
cdef class AdapterSlots:
    cdef int32_t _num_adapters
    cdef int32_t _base                  # the adapter of requests without one, in a slot from the start; -1: none
    cdef int32_t _limits[2]             # adapters on the accelerator, and in host memory
    cdef int64_t _batch                 # number of the batch that needs the adapters
    cdef int64_t* _used                 # [adapter] number of the last batch that used it, from 1; 0: no batch
    cdef int32_t* _held[2]              # [_limits] adapters at each level
    cdef int32_t _num_held[2]
    cdef readonly int32_t limit         # adapters on the accelerator
    cdef int64_t loads, reads, evictions       # loads to the accelerator, disk reads, evictions from the accelerator

    # The batch with this number uses an adapter, which is loaded first if it is absent.
    cdef inline void use(self, int32_t adapter, int64_t batch, BatchShape* shape) noexcept nogil:
        self._batch = batch
        if not self.has(adapter):
            self._load(adapter, shape)
        self._used[adapter] = max(self._used[adapter], batch)

    # Is an adapter on the accelerator? `touch` records its use by the batch with this number, if it is there.
    cdef inline bint has(self, int32_t adapter) noexcept nogil:
        return self._used[adapter] > 0 and self._holds(0, adapter)

    cdef inline void touch(self, int32_t adapter, int64_t batch) noexcept nogil:
        if self._used[adapter] > 0:
            self._used[adapter] = max(self._used[adapter], batch)

    # Drop all adapters.
    cdef void forget(self) noexcept nogil

    cdef bint _holds(self, int level, int32_t adapter) noexcept nogil
    cdef void _load(self, int32_t adapter, BatchShape* shape) noexcept nogil
    cdef bint _put(self, int level, int32_t adapter) noexcept nogil

    # Is an adapter evicted rather than another one? Those of the batch are last, and `_base` before them.
    cdef bint _goes_before(self, int32_t adapter, int32_t other) noexcept nogil
