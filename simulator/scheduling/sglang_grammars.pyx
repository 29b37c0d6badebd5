"""Requests that wait for their grammars in SGLang's scheduler.

A request that a pass reads has its grammar compiled by the first free thread, unless an earlier pass has seen the end
of a compilation of that grammar: requests with the same new grammar compile it each. Passes that may admit prompts look
for compilations that have ended. Source: sglang 0.5.23, constrained/grammar_manager.py (process_req_with_grammar,
get_ready_grammar_requests), constrained/base_grammar_backend.py (get_cached_or_future_value).
"""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport add_row, has_row


@cython.final
cdef class GrammarQueue:
    """See sglang_grammars.pxd.

    compile_ns : int64 (g,), compile time of each grammar. fails : int8 (g,), does its compilation fail, at its end?
    num_workers : threads that compile one grammar at a time each; 0: no limit.
    demands : structured array (n,), `records.DEMAND`. waiting : the WaitingQueue of the scheduler.
    """

    def __cinit__(self, const int64_t[::1] compile_ns, const int8_t[::1] fails, int32_t num_workers,
                  const Demand[::1] demands, WaitingQueue waiting):
        self._num_grammars, self._num_workers = len(compile_ns), num_workers
        self._owners, self._waiting = (compile_ns, fails, demands), waiting
        self._compile_ns = &compile_ns[0] if len(compile_ns) else NULL
        self._fails = &fails[0] if len(fails) else NULL
        self._demands = &demands[0] if len(demands) else NULL
        self._is_known = <int8_t*>calloc(len(compile_ns) + 1, sizeof(int8_t))
        self._ready_ns = <int64_t*>malloc((len(demands) + 1) * sizeof(int64_t))
        self._free_ns = <int64_t*>calloc(num_workers + 1, sizeof(int64_t))
        if self._is_known == NULL or self._ready_ns == NULL or self._free_ns == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.rows.rows)
        free(self.ready.rows)
        free(self._is_known)
        free(self._ready_ns)
        free(self._free_ns)

    cdef int add(self, int32_t row) except -1 nogil:
        add_row(&self.rows, row)
        self._ready_ns[row] = NEVER_NS
        self._num_unread += 1
        return 0

    cdef int hide(self) except -1 nogil:
        cdef int32_t i, kept = 0
        for i in range(self.rows.size):
            if self._waiting.remove(self.rows.rows[i]) >= 0:
                self.rows.rows[kept] = self.rows.rows[i]
                kept += 1
        self.rows.size, self.is_hidden = kept, True
        return 0

    cdef void read(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i
        for i in range(self.rows.size if self._num_unread > 0 else 0):
            if self._ready_ns[self.rows.rows[i]] == NEVER_NS:
                self._compile(self.rows.rows[i], now_ns)
        self._num_unread = 0

    cdef void _compile(self, int32_t row, int64_t now_ns) noexcept nogil:
        cdef int64_t duration_ns = self._compile_ns[self._demands[row].grammar], begin_ns = now_ns
        cdef int32_t worker = 0, i
        if self._num_workers > 0:
            for i in range(1, self._num_workers):
                if self._free_ns[i] < self._free_ns[worker]:
                    worker = i
            begin_ns = max(begin_ns, self._free_ns[worker])
            self._free_ns[worker] = begin_ns + duration_ns
        self._ready_ns[row] = begin_ns + duration_ns
        self.num_compiled += 1
        self.compile_ns += duration_ns

    cdef int show(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.rows.size):
            self._waiting.push(self.rows.rows[i])
        self.is_hidden = False
        return 0

    cdef int collect(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, row, kept = 0
        self.ready.size = 0
        for i in range(self.rows.size):
            row = self.rows.rows[i]
            if self._ready_ns[row] <= now_ns:
                self._is_known[self._demands[row].grammar] = True
                add_row(&self.ready, row)
            else:
                self.rows.rows[kept] = row
                kept += 1
        self.rows.size = kept
        return 0

    cdef int64_t next_ns(self) noexcept nogil:
        cdef int64_t next_ns = NEVER_NS
        cdef int32_t i
        for i in range(self.rows.size):
            next_ns = min(next_ns, self._ready_ns[self.rows.rows[i]])
        return next_ns

    cdef bint others_wait(self) noexcept nogil:
        cdef int32_t i
        if self.rows.size == 0:
            return self._waiting.size > 0
        for i in range(self._waiting.size):
            if not has_row(&self.rows, self._waiting.at(i)):
                return True
        return False

    cdef void forget(self) noexcept nogil:
        memset(self._is_known, 0, self._num_grammars * sizeof(int8_t))
        memset(self._free_ns, 0, self._num_workers * sizeof(int64_t))
        self.rows.size = self._num_unread = 0
