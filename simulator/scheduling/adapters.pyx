"""LoRA adapters that a batch uses: at most max_loras."""
from libc.stdlib cimport calloc, free
cimport cython


@cython.final
cdef class Adapters:
    """Adapter slots of one replica.

    limit : adapters that a batch may use, vLLM's max_loras. size : adapters named by requests.
    """

    def __cinit__(self, int32_t limit, int32_t size):
        self.limit, self.size = limit, size
        self._used_in = <int64_t*>calloc(size + 1, sizeof(int64_t))
        self._used = <int32_t*>calloc(size + 1, sizeof(int32_t))
        self._before = <int32_t*>calloc(size + 1, sizeof(int32_t))
        if self._used_in == NULL or self._used == NULL or self._before == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._used_in)
        free(self._used)
        free(self._before)

    cdef void begin(self) noexcept nogil:
        self._batch += 1
        self._used, self._before = self._before, self._used
        self._num_before, self.num_used = self.num_used, 0

    cdef void tell(self, WaitingQueue waiting) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_before):
            if self._used_in[self._before[i]] != self._batch:
                waiting.set_slot(self._before[i], False)
        for i in range(self.num_used):
            waiting.set_slot(self._used[i], True)
