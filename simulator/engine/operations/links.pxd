"""Links between replicas, and what is being copied over them."""
from libc.stdint cimport int32_t, int64_t
cimport cython


@cython.final
cdef class Flow:                # bytes on their way from one link to another
    cdef readonly int32_t source
    cdef readonly int32_t destination
    cdef readonly int64_t end_ns        # when the last byte is through, as things stand; NEVER_NS: never
    cdef double _num_bytes      # to go, when its rate changed last
    cdef double _rate           # bytes/s
    cdef int64_t _since_ns      # when its rate changed last

    cdef int go_on(self, double rate, int64_t now_ns) except -1


@cython.final
cdef class Links:
    cdef list _flows            # Flow, in the order in which they began
    cdef list _out              # [link] bytes/s that leave it at most
    cdef list _into             # [link] bytes/s that enter it at most

    # When the first flow ends; NEVER_NS: none does.
    cdef int64_t next_end_ns(self) except -1
