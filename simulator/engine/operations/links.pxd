"""Links between replicas, and the copies over them."""
from libc.stdint cimport int32_t, int64_t
cimport cython


@cython.final
cdef class Flow:                # bytes on their way from one link to another
    cdef readonly int32_t source
    cdef readonly int32_t destination
    cdef readonly int64_t end_ns        # when the last byte arrives, at the present rate; NEVER_NS: never
    cdef double _num_bytes      # to go, when its rate changed last
    cdef double _rate           # bytes/s
    cdef int64_t _since_ns      # when its rate changed last

    cdef int go_on(self, double rate, int64_t now_ns) except -1


@cython.final
cdef class Links:
    cdef list _flows            # Flow, in the order in which they began
    cdef list _out              # [link] largest bytes/s out of it
    cdef list _into             # [link] largest bytes/s into it

    # Return when the first flow ends; NEVER_NS: there is none.
    cdef int64_t next_end_ns(self) except -1
