"""Pick a replica by its score; among equals each has the same chance."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from simulator.core.draws cimport Draws
from simulator.core.tied_minima cimport TiedMinima


cdef inline double highest(const double* values, int32_t count) noexcept nogil:
    """The largest value, NaN passed over; -infinity if there is none. Four at once: comparisons wait for each other."""
    cdef double a = -INFINITY, b = -INFINITY, c = -INFINITY, d = -INFINITY
    cdef int32_t i = 0
    while i + 4 <= count:
        a = values[i] if values[i] > a else a
        b = values[i + 1] if values[i + 1] > b else b
        c = values[i + 2] if values[i + 2] > c else c
        d = values[i + 3] if values[i + 3] > d else d
        i += 4
    while i < count:
        a = values[i] if values[i] > a else a
        i += 1
    a = a if a > b else b
    c = c if c > d else d
    return a if a > c else c


cdef inline double lowest(const double* values, int32_t count) noexcept nogil:
    """The smallest value, NaN passed over; infinity if there is none."""
    cdef double a = INFINITY, b = INFINITY, c = INFINITY, d = INFINITY
    cdef int32_t i = 0
    while i + 4 <= count:
        a = values[i] if values[i] < a else a
        b = values[i + 1] if values[i + 1] < b else b
        c = values[i + 2] if values[i + 2] < c else c
        d = values[i + 3] if values[i + 3] < d else d
        i += 4
    while i < count:
        a = values[i] if values[i] < a else a
        i += 1
    a = a if a < b else b
    c = c if c < d else d
    return a if a < c else c


cdef inline int32_t pick_highest(const double* scores, int32_t count, Draws draws) noexcept nogil:
    """An index of the highest score, drawn if several have it; -1 if all are -infinity."""
    cdef double best = highest(scores, count)
    cdef int32_t ties = 0, i
    if best == -INFINITY:
        return -1
    for i in range(count):
        ties += scores[i] == best
    ties = draws.below(ties) if ties > 1 else 0
    for i in range(count):
        if scores[i] == best:
            if ties == 0:
                return i
            ties -= 1
    return -1


cdef inline int32_t first_highest(const double* scores, int32_t count) noexcept nogil:
    """The first index of the highest score; -1 if all are -infinity."""
    cdef double best = highest(scores, count)
    cdef int32_t i
    for i in range(count):
        if scores[i] == best and best > -INFINITY:
            return i
    return -1


cdef inline int32_t pick_in_proportion(const double* scores, int32_t count, Draws draws) noexcept nogil:
    """An index drawn with a chance in proportion to its score, -infinity: never; uniform if all others are 0."""
    cdef double total = 0.0, left
    cdef int32_t candidates = 0, last = -1, i
    for i in range(count):
        if scores[i] > -INFINITY:
            candidates += 1
            total += scores[i]
    if candidates == 0:
        return -1
    left = draws.uniform() * (total if total > 0.0 else candidates)
    for i in range(count):
        if scores[i] > -INFINITY and (total <= 0.0 or scores[i] > 0.0):
            last = i
            left -= scores[i] if total > 0.0 else 1.0
            if left < 0.0:
                return i
    return last                 # rounding left a little over


cdef inline int32_t pick_least(TiedMinima keys, Draws draws) noexcept nogil:
    """An index of the least key, drawn if several have it; -1 if all are infinity."""
    cdef int32_t ties = keys.ties()
    if keys.least() == INFINITY:
        return -1
    return keys.tied(draws.below(ties) if ties > 1 else 0)
