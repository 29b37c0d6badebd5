# cython: language_level=3
"""A view whose caches a test fills."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router
from simulator.signals.view cimport View


cdef class FilledView(View):
    """A plain view; `cached`: {(replica, row): blocks}."""

    cdef public dict cached

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        with gil:
            return self.cached.get((replica, row), 0)


cdef class Misspelt(Router):
    """A router whose author meant to override `route`."""

    cdef int32_t rout(self, int32_t row, int64_t now_ns) except -2 nogil:
        return 0
