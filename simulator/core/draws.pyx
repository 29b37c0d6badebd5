"""Random numbers for compiled code: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
cimport cython

import numpy as np


@cython.final
cdef class Draws:
    """A stream of random numbers.

    generator : numpy.random.Generator that gives the first state, one of `RandomStreams`.
    """

    def __init__(self, generator):
        self._state = <uint64_t>int(generator.integers(0, 2**64, dtype=np.uint64))

    @staticmethod
    def replaying(words):
        """Return a stream of the given words, which begins again after the last.

        It repeats a recorded run with another system's numbers: `below(count)` is the remainder of a word. A caller
        that must not begin again checks `num_replayed` afterwards.

        Parameters
        ----------
        words : whole numbers below 2**64, at least one.
        """
        cdef const uint64_t[::1] given = np.array(words, dtype=np.uint64)
        cdef Draws draws = Draws.__new__(Draws)
        if len(given) == 0:
            raise ValueError("words must hold at least one number")
        draws._owner, draws._words, draws._num_words = given.base, &given[0], len(given)
        return draws

    cdef uint64_t _replay(self) noexcept nogil:
        cdef uint64_t word = self._words[self.num_replayed % self._num_words]
        self.num_replayed += 1
        return word

    def next_uniform(self):
        """Return the next number in [0, 1) (for Python and tests)."""
        return self.uniform()

    def next_below(self, count):
        """Return the next integer in 0 .. count - 1 (for Python and tests)."""
        if not 1 <= count < 2**31:
            raise ValueError(f"count must be 1 .. 2**31 - 1, found {count}")
        return self.below(count)
