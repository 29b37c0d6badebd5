"""Random numbers for compiled code: a stream of 64-bit words, without the GIL and without a call into NumPy."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    """Mix all bits: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


@cython.final
cdef class Draws:
    cdef uint64_t _state
    cdef const uint64_t* _words     # replaces random bits, one word after the other; NULL: not used
    cdef int64_t _num_words
    cdef readonly int64_t num_replayed      # words given so far
    cdef object _owner              # of the words

    # The next 64 random bits, or the next word that was given instead.
    cdef inline uint64_t bits(self) noexcept nogil:
        if self._words != NULL:
            return self._replay()
        self._state += <uint64_t>0x9E3779B97F4A7C15
        return mix(self._state)

    # Uniform in [0, 1), from the upper 53 bits.
    cdef inline double uniform(self) noexcept nogil:
        return (self.bits() >> 11) * 1.1102230246251565e-16         # 2**-53

    # Uniform in 0 .. count - 1, count >= 1. Its bias is count / 2**64.
    cdef inline int32_t below(self, int32_t count) noexcept nogil:
        return <int32_t>(self.bits() % <uint64_t>count)

    # The next of the words, the first again after the last.
    cdef uint64_t _replay(self) noexcept nogil
