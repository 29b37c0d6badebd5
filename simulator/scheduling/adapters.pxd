"""LoRA adapters that a batch uses: at most max_loras."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.scheduling.waiting_queue cimport WaitingQueue


@cython.final
cdef class Adapters:
    cdef readonly int32_t limit         # max_loras
    cdef readonly int32_t num_used      # adapters in the batch being formed
    cdef readonly int32_t size          # adapters named by requests
    cdef int64_t _batch                 # number of the batch being formed
    cdef int32_t* _used                 # [num_used] adapters in the batch being formed
    cdef int32_t* _before               # [_num_before] adapters in the batch before, at the last pass over the queue
    cdef int32_t _num_before
    cdef int64_t* _used_in              # [size] by adapter: number of the last batch that uses it

    # Begin another batch, which uses no adapter yet.
    cdef void begin(self) noexcept nogil

    # Is there a slot for any adapter?
    cdef inline bint has_free_slots(self) noexcept nogil:
        return self.num_used < self.limit

    # May a request with this adapter (-1: none) join the batch? `use` adds its adapter; True: the batch did not use it.
    cdef inline bint has_room_for(self, int32_t adapter) noexcept nogil:
        return adapter < 0 or self._used_in[adapter] == self._batch or self.num_used < self.limit

    cdef inline bint use(self, int32_t adapter) noexcept nogil:
        if adapter < 0 or self._used_in[adapter] == self._batch:
            return False
        self._used_in[adapter] = self._batch
        self._used[self.num_used] = adapter
        self.num_used += 1
        return True

    # Let the waiting queue know the adapters with a slot, before a pass over it.
    cdef void tell(self, WaitingQueue waiting) noexcept nogil
