"""Which LoRA adapters a batch uses: no more than there are slots for."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.scheduling.waiting_queue cimport WaitingQueue


@cython.final
cdef class Adapters:
    cdef readonly int32_t limit         # max_loras
    cdef readonly int32_t num_used      # in the batch being formed
    cdef readonly int32_t size          # that requests ask for at all
    cdef int64_t _batch                 # which one is being formed
    cdef int32_t* _used                 # [num_used] they
    cdef int64_t* _used_in              # [size] by adapter: the last batch that uses it

    # Another batch is formed, which uses none yet.
    cdef inline void begin(self) noexcept nogil:
        self._batch += 1
        self.num_used = 0

    # May one more request be in it, by its adapter, -1: none? It is.
    cdef inline bint has_room_for(self, int32_t adapter) noexcept nogil:
        return adapter < 0 or self._used_in[adapter] == self._batch or self.num_used < self.limit

    cdef inline void use(self, int32_t adapter) noexcept nogil:
        if adapter >= 0 and self._used_in[adapter] != self._batch:
            self._used_in[adapter] = self._batch
            self._used[self.num_used] = adapter
            self.num_used += 1

    # Of the rows that wait, counted by adapter, those that there is room for as far as adapters go.
    cdef int32_t num_admissible(self, WaitingQueue waiting) noexcept nogil
