"""Which grammars of structured outputs are compiled, and when the others are."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.event_queue cimport EventQueue


@cython.final
cdef class Grammars:
    cdef int32_t _num_grammars
    cdef const int64_t* _compile_ns     # [grammar]
    cdef const int8_t* _fails           # [grammar] it does not compile
    cdef object _owners
    cdef int64_t* _ready_ns             # [grammar] when it is, or was, compiled; NEVER_NS: nobody asked for it
    cdef int64_t* _free_ns              # [_num_workers] when a worker has done all it has been given; NULL: no limit
    cdef int32_t _num_workers
    cdef EventQueue _underway
    cdef readonly int64_t num_compiled, compile_ns      # asked for, and how long workers take for them

    # A request needs a grammar from now on; -1: none. It is compiled once, and by the worker that is free first.
    cdef int ask(self, int32_t grammar, int64_t now_ns) except -1 nogil

    # None is compiled any more, and nobody compiles.
    cdef void forget(self) noexcept nogil

    # Is the grammar of a request still to come? Does it not compile, once it is not? -1: a request without one.
    cdef inline bint is_awaited(self, int32_t grammar, int64_t now_ns) noexcept nogil:
        return grammar >= 0 and self._ready_ns[grammar] > now_ns

    cdef inline bint fails(self, int32_t grammar) noexcept nogil:
        return grammar >= 0 and self._fails[grammar]

    # When the next one is compiled, after an instant.
    cdef inline int64_t next_ns(self, int64_t now_ns) noexcept nogil:
        while self._underway.next_time() <= now_ns:
            self._underway.pop()
        return self._underway.next_time()
