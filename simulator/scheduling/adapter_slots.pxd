"""Which LoRA adapters a worker holds, on the accelerator and in host memory."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.batch cimport BatchShape


@cython.final
cdef class AdapterSlots:
    cdef int32_t _num_adapters
    cdef int32_t _limits[2]             # adapters on the accelerator, and in host memory
    cdef int64_t* _used                 # [adapter] number of its last use; 0: never
    cdef int32_t* _held[2]              # [_limits] adapters that are there
    cdef int32_t _num_held[2]
    cdef int64_t _now                   # uses so far
    cdef int64_t loads, reads, evictions       # to the accelerator; of these, from the disk; from there

    # A batch uses an adapter; -1: a request without one. It is loaded before, if need be.
    cdef inline void use(self, int32_t adapter, BatchShape* shape) noexcept nogil:
        if adapter >= 0 and self.has(adapter):
            self.touch(adapter)
        elif adapter >= 0:
            self._load(adapter, shape)

    # Is it on the accelerator? If it is, it is used now.
    cdef inline bint has(self, int32_t adapter) noexcept nogil:
        return self._used[adapter] > 0 and self._holds(0, adapter)

    cdef inline void touch(self, int32_t adapter) noexcept nogil:
        self._now += 1
        self._used[adapter] = self._now if self._used[adapter] > 0 else 0

    # All are gone.
    cdef void forget(self) noexcept nogil

    cdef bint _holds(self, int level, int32_t adapter) noexcept nogil
    cdef void _load(self, int32_t adapter, BatchShape* shape) noexcept nogil
    cdef bint _put(self, int level, int32_t adapter) noexcept nogil
