"""Which LoRA adapters a replica of BLIS holds, and the one that it loads beside its iterations."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython


@cython.final
cdef class AdapterLoads:
    cdef const int64_t* _load_ns        # [adapter]
    cdef object _owner
    cdef int32_t _capacity
    cdef int32_t _num_adapters
    cdef int32_t _num_resident          # adapters that are here, or on the way
    cdef int64_t* _used                 # [adapter] number of its last use, of one that is here; 0: it is not
    cdef int8_t* _is_pinned             # [adapter] a request with it runs
    cdef int64_t _now                   # uses so far
    cdef readonly int32_t loading       # the adapter on the way; -1: none
    cdef readonly int64_t done_ns       # when it is here; NEVER_NS: none is on the way
    cdef int64_t loads, evictions

    # Is an adapter here? -1: a request without one.
    cdef inline bint is_here(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return adapter < 0 or self._used[adapter] > 0 or (adapter == self.loading and self.done_ns <= now_ns)

    # Take notice of what has come.
    cdef void settle(self, int64_t now_ns) noexcept nogil

    # It is used now, by a request that begins to run.
    cdef inline void use(self, int32_t adapter) noexcept nogil:
        if adapter >= 0:
            self._now += 1
            self._used[adapter] = self._now

    # Load one that is not here, unless another one is on the way; for it that one goes, of those without a running
    # request, which was not used for the longest time. Those of running requests are pinned before.
    cdef void unpin_all(self) noexcept nogil
    cdef inline void pin(self, int32_t adapter) noexcept nogil:
        if adapter >= 0:
            self._is_pinned[adapter] = True

    cdef void load(self, int32_t adapter, int64_t now_ns) noexcept nogil

    # All are gone, the one on the way, too.
    cdef void forget(self) noexcept nogil
