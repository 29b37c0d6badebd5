"""The random numbers with which BLIS draws among equals: those of Go's math/rand.

An additive lagged Fibonacci generator, x[n] = x[n - 607] + x[n - 273] modulo 2^64. A seed fills its first 607 words
from the Lehmer generator 48271 x modulo 2^31 - 1 (Park, Miller, CACM 31(10), 1988), and each is combined with a word of
a fixed table: the state that the seed 1, with narrower words, reaches after 7.8e12 steps. It is worked out here, with a
power of x modulo the polynomial of the recurrence. Source of the numbers: Go, src/math/rand/rng.go and gen_cooked.go.
"""
from functools import cache

import numpy as np

LENGTH, TAP = 607, 273
LEHMER = 2**31 - 1
STEPS_OF_TABLE = 7_800_000_000_000
WORD = 2**64 - 1


class GoRandom:
    """The generator that `rand.New(rand.NewSource(seed))` returns."""

    def __init__(self, seed):
        self._words = [int(word) for word in _in_order(_seeded(seed, 40, 20) ^ _table())]

    def below(self, count):
        """Return `Intn(count)`: uniform in 0 .. count - 1."""
        if count & (count - 1) == 0:
            return self.bits31() & (count - 1)
        drawn = self.bits31()
        while drawn > accepted(count):
            drawn = self.bits31()
        return drawn % count

    def bits31(self):
        """Return `Int31()`: 31 random bits."""
        self._words.append((self._words[-LENGTH] + self._words[-TAP]) & WORD)
        return self._words[-1] >> 32 & LEHMER


def accepted(count):
    """Return the largest 31 bits of which `Intn(count)` takes the remainder; beyond it draws again."""
    return 2**31 - 1 - 2**31 % count


def router_words(seed, num_words, num_replicas):
    """Return the first words of BLIS's router, of which it takes remainders by 2 .. num_replicas.

    Raises
    ------
    ValueError
        For some of these counts Go draws again, so that the words do not tell alone what is drawn.
    """
    random = GoRandom(seed_of("router", seed))
    words = [random.bits31() for _ in range(num_words)]
    if max(words) > min((accepted(count) for count in range(1, num_replicas + 1)), default=LEHMER):
        raise ValueError(f"seed {seed}: a word of the router's is beyond what Go takes remainders of")
    return words


def seed_of(subsystem, seed):
    """Return the seed of a part of BLIS: that of the run XOR the 64-bit FNV-1a hash of its name."""
    value = 0xCBF29CE484222325
    for byte in subsystem.encode():
        value = (value ^ byte) * 0x100000001B3 & WORD
    value ^= seed
    return value - 2**64 if value >= 2**63 else value


def _seeded(seed, high, low):
    """Return 607 words of three Lehmer numbers each, after 20 that are skipped."""
    x, numbers = seed % LEHMER or 89482311, []
    for _ in range(20 + 3 * LENGTH):
        x = x * 48271 % LEHMER
        numbers.append(x)
    parts = np.array(numbers[20:], np.uint64).reshape(LENGTH, 3)
    return parts[:, 0] << np.uint64(high) ^ parts[:, 1] << np.uint64(low) ^ parts[:, 2]


def _in_order(words):
    """Return the words as the recurrence meets them: Go goes through them backwards, first the one at 333."""
    return words[(LENGTH - TAP - 1 - np.arange(LENGTH)) % LENGTH]


@cache
def _table():
    power, x = _power_of_x(STEPS_OF_TABLE), np.zeros(2 * LENGTH, np.uint64)
    x[:LENGTH] = _in_order(_seeded(1, 20, 10))
    for begin in range(LENGTH, 2 * LENGTH, TAP):        # a stretch of TAP words depends on earlier ones alone
        end = min(begin + TAP, 2 * LENGTH)
        x[begin:end] = x[begin - LENGTH:end - LENGTH] + x[begin - TAP:end - TAP]
    table = np.zeros(LENGTH, np.uint64)
    for i in range(LENGTH):
        table[(LENGTH - TAP - 1 - STEPS_OF_TABLE - i) % LENGTH] = (power * x[i:i + LENGTH]).sum(dtype=np.uint64)
    return table


def _power_of_x(exponent):
    """Return the coefficients of x^exponent modulo x^607 - x^334 - 1."""
    result, square = np.zeros((2, LENGTH), np.uint64)
    result[0] = square[1] = 1
    while exponent:
        if exponent & 1:
            result = _product(result, square)
        square = _product(square, square)
        exponent >>= 1
    return result


def _product(a, b):
    terms = np.zeros(2 * LENGTH - 1, np.uint64)
    for i in range(LENGTH):
        terms[i:i + LENGTH] += a[i] * b
    for end in range(2 * LENGTH - 1, LENGTH, -TAP):     # x^n = x^(n - 607) + x^(n - 273)
        begin = max(end - TAP, LENGTH)
        terms[begin - LENGTH:end - LENGTH] += terms[begin:end]
        terms[begin - TAP:end - TAP] += terms[begin:end]
    return terms[:LENGTH]
