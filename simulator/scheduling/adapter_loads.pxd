"""LoRA adapters that a replica of BLIS holds, and the adapter being loaded beside its iterations."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython


@cython.final
cdef class AdapterLoads:
    cdef const int64_t* _load_ns        # [adapter]
    cdef object _owner
    cdef int32_t _capacity
    cdef int32_t _num_adapters
    cdef int32_t _num_resident          # adapters that are loaded, or being loaded
    cdef int64_t* _used                 # [adapter] number of its last use if it is loaded; 0: it is not
    cdef int8_t* _is_pinned             # [adapter] a running request uses it
    cdef int64_t _now                   # uses so far
    cdef readonly int32_t loading       # the adapter being loaded; -1: none
    cdef readonly int64_t done_ns       # when its load ends; NEVER_NS: none is being loaded
    cdef int64_t loads, evictions

    # Is an adapter loaded? Always, for a request without an adapter (-1).
    cdef inline bint is_here(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return adapter < 0 or self._used[adapter] > 0 or (adapter == self.loading and self.done_ns <= now_ns)

    # Record a load that has ended by `now_ns`.
    cdef void settle(self, int64_t now_ns) noexcept nogil

    # A request that begins to run uses the adapter.
    cdef inline void use(self, int32_t adapter) noexcept nogil:
        if adapter >= 0:
            self._now += 1
            self._used[adapter] = self._now

    # Load an adapter that is not loaded, unless another load is in progress. If all slots are taken, evict the least
    # recently used adapter without a running request; adapters of running requests must be pinned before.
    cdef void unpin_all(self) noexcept nogil
    cdef inline void pin(self, int32_t adapter) noexcept nogil:
        if adapter >= 0:
            self._is_pinned[adapter] = True

    cdef void load(self, int32_t adapter, int64_t now_ns) noexcept nogil

    # Drop all adapters, and the load in progress.
    cdef void forget(self) noexcept nogil
