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
        if self._used_in == NULL or self._used == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._used_in)
        free(self._used)

    cdef int32_t num_admissible(self, WaitingQueue waiting) noexcept nogil:
        cdef int32_t rows = waiting.with_adapter(-1), i
        if self.num_used < self.limit:
            return waiting.size
        for i in range(self.num_used):
            rows += waiting.with_adapter(self._used[i])
        return rows
