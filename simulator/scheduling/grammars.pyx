"""Compilation state of the grammars of structured outputs.

Source: vLLM 0.32.0, vllm/v1/structured_output/__init__.py, StructuredOutputManager.grammar_init.
"""
from libc.stdlib cimport calloc, free, malloc
cimport cython


@cython.final
cdef class Grammars:
    """Grammars of one replica.

    compile_ns : int64 (g,), compile time of each grammar. fails : int8 (g,), does its compilation fail, at its end?
    num_workers : threads that compile one grammar at a time each; 0: no limit.
    """

    def __cinit__(self, const int64_t[::1] compile_ns, const int8_t[::1] fails, int32_t num_workers):
        cdef Py_ssize_t count = len(compile_ns)
        self._num_grammars = count
        self._owners, self._underway = (compile_ns, fails), EventQueue()
        self._compile_ns = &compile_ns[0] if count else NULL
        self._fails = &fails[0] if count else NULL
        self._ready_ns = <int64_t*>malloc((count + 1) * sizeof(int64_t))
        self._num_workers = num_workers
        if num_workers > 0:
            self._free_ns = <int64_t*>calloc(num_workers, sizeof(int64_t))
        if self._ready_ns == NULL or (num_workers > 0 and self._free_ns == NULL):
            raise MemoryError()
        self.forget()

    def __dealloc__(self):
        free(self._ready_ns)
        free(self._free_ns)

    cdef void forget(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_grammars):
            self._ready_ns[i] = NEVER_NS
        for i in range(self._num_workers):
            self._free_ns[i] = 0
        self._underway.clear()

    cdef int ask(self, int32_t grammar, int64_t now_ns) except -1 nogil:
        cdef int64_t begin_ns = now_ns
        cdef int32_t worker = 0, i
        if grammar < 0 or self._ready_ns[grammar] < NEVER_NS:
            return 0
        if self._num_workers > 0:
            for i in range(1, self._num_workers):
                if self._free_ns[i] < self._free_ns[worker]:
                    worker = i
            begin_ns = max(begin_ns, self._free_ns[worker])
            self._free_ns[worker] = begin_ns + self._compile_ns[grammar]
        self._ready_ns[grammar] = begin_ns + self._compile_ns[grammar]
        self.num_compiled += 1
        self.compile_ns += self._compile_ns[grammar]
        return self._underway.push(self._ready_ns[grammar], 0, 0, 0, 0)
