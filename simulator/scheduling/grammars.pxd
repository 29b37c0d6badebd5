"""Compilation state of the grammars of structured outputs."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.event_queue cimport EventQueue


@cython.final
cdef class Grammars:
    cdef int32_t _num_grammars
    cdef const int64_t* _compile_ns     # [grammar] compile time
    cdef const int8_t* _fails           # [grammar] compilation fails
    cdef object _owners
    cdef int64_t* _ready_ns             # [grammar] end of its compilation; NEVER_NS: not requested yet
    cdef int64_t* _free_ns              # [_num_workers] when a worker has done all its work; NULL: no limit
    cdef int32_t _num_workers
    cdef EventQueue _underway
    cdef readonly int64_t num_compiled, compile_ns      # grammars requested, and their total compile time

    # A request needs a grammar (-1: none). It is compiled once, by the worker that is free first.
    cdef int ask(self, int32_t grammar, int64_t now_ns) except -1 nogil

    # Drop all compiled grammars, and compilations in progress.
    cdef void forget(self) noexcept nogil

    # Is the grammar of a request (-1: none) still being compiled? Did its compilation fail, once it has ended?
    cdef inline bint is_awaited(self, int32_t grammar, int64_t now_ns) noexcept nogil:
        return grammar >= 0 and self._ready_ns[grammar] > now_ns

    # The end of the compilation of a grammar that was requested.
    cdef inline int64_t ready_ns(self, int32_t grammar) noexcept nogil:
        return self._ready_ns[grammar]

    cdef inline bint fails(self, int32_t grammar) noexcept nogil:
        return grammar >= 0 and self._fails[grammar]

    # The end of the next compilation after an instant.
    cdef inline int64_t next_ns(self, int64_t now_ns) noexcept nogil:
        while self._underway.next_time() <= now_ns:
            self._underway.pop()
        return self._underway.next_time()
