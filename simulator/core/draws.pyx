"""Random numbers for compiled code: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
from libc.stdint cimport uint64_t
cimport cython

import numpy as np


@cython.final
cdef class Draws:
    """A stream of random numbers.

    generator : numpy.random.Generator that gives the first state, one of `RandomStreams`.
    """

    def __init__(self, generator):
        self._state = <uint64_t>int(generator.integers(0, 2**64, dtype=np.uint64))

    def next_uniform(self):
        """Return the next number in [0, 1) (for Python and tests)."""
        return self.uniform()

    def next_below(self, count):
        """Return the next integer in 0 .. count - 1 (for Python and tests)."""
        if not 1 <= count < 2**31:
            raise ValueError(f"count must be 1 .. 2**31 - 1, found {count}")
        return self.below(count)
