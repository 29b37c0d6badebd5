"""Conversions between int64 nanoseconds and the units of the borders."""
from libc.math cimport llround

globals()["NEVER_NS"] = NEVER_NS        # as a statement would read, the C constant could not be given to Python


cdef int64_t _nearest(double ns) noexcept nogil:
    return llround(ns) if ns < 9223372036854775808.0 else NEVER_NS     # 2**63


cpdef int64_t ns_from_s(double seconds) noexcept nogil:
    """Return the nearest nanosecond, halves away from zero; NEVER_NS from 2**63 ns (292 years) on."""
    return _nearest(seconds * 1e9)


cpdef int64_t ns_from_ms(double milliseconds) noexcept nogil:
    """Return the nearest nanosecond, halves away from zero; NEVER_NS from 2**63 ns (292 years) on."""
    return _nearest(milliseconds * 1e6)


cpdef int64_t ns_from_us(double microseconds) noexcept nogil:
    """Return the nearest nanosecond, halves away from zero; NEVER_NS from 2**63 ns (292 years) on."""
    return _nearest(microseconds * 1e3)


cpdef double s_from_ns(int64_t ns) noexcept nogil:
    """Return seconds."""
    return ns / 1e9


cpdef double ms_from_ns(int64_t ns) noexcept nogil:
    """Return milliseconds."""
    return ns / 1e6


cpdef double us_from_ns(int64_t ns) noexcept nogil:
    """Return microseconds."""
    return ns / 1e3
