"""Time is int64 nanoseconds; other units exist at the borders only. Python sees all of this too."""
from libc.stdint cimport int64_t


cdef extern from *:
    const int64_t NEVER_NS "INT64_MAX"      # an instant that never comes: later than every other, as a minimum needs

# The nearest nanosecond, halves away from zero; NEVER_NS from 2**63 ns (292 years) on.
cpdef int64_t ns_from_s(double seconds) noexcept nogil
cpdef int64_t ns_from_ms(double milliseconds) noexcept nogil
cpdef int64_t ns_from_us(double microseconds) noexcept nogil

cpdef double s_from_ns(int64_t ns) noexcept nogil
cpdef double ms_from_ns(int64_t ns) noexcept nogil
cpdef double us_from_ns(int64_t ns) noexcept nogil
