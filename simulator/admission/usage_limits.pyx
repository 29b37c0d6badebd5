"""Saturation at which each priority of a gateway queue is held back.

Source of the rules: the usage limits of llm-d-router ebab6879: static, priority-holdback, soft-reflective.
"""
cimport cython
from libc.math cimport floor

cdef enum Policy:
    STATIC = 0
    HOLDBACK = 1
    REFLECTIVE = 2

_POLICIES = ("static", "holdback", "reflective")


@cython.final
cdef class UsageLimits:
    """Ceilings of bands; `limits` : domain.gateway.Limits.

    lowest_ceiling : of [cluster.gateway_queue], for static limits.
    """

    def __init__(self, limits, double lowest_ceiling):
        self._policy = _POLICIES.index(limits.policy)
        self._least, self._most = lowest_ceiling, 1.0
        if self._policy == HOLDBACK:
            self._least, self._most = limits.least_ceiling, limits.largest_ceiling
        self._is_by_value = limits.spacing == "value"

    cdef void begin(self, double saturation) noexcept nogil:
        self._calls += self._policy == REFLECTIVE and 0.5 <= saturation < 1.0

    cdef double ceiling(self, int32_t position, int32_t num_open, double height, double saturation) noexcept nogil:
        cdef int64_t period
        if num_open == 1 or (self._policy == REFLECTIVE and position == 0):
            return self._most
        if self._policy != REFLECTIVE:
            if self._is_by_value and self._policy == HOLDBACK:
                return self._least + height * (self._most - self._least)
            return self._most - position * (self._most - self._least) / (num_open - 1)
        if saturation < 1.0 - position * saturation / (num_open - 1):
            return 1.0
        if saturation >= 1.0:
            return 0.0
        period = max(1, <int64_t>floor(saturation / (1.0 - saturation) + 0.5))
        return 1.0 if self._calls % period == 0 else 0.0

    # The face for tests and exploration.

    def ceilings(self, priorities, saturation):
        """Return the ceilings of open bands at the next dispatch; `priorities` : falling."""
        lowest, span = min(priorities), max(max(priorities) - min(priorities), 1)
        self.begin(saturation)
        return [self.ceiling(i, len(priorities), (each - lowest) / span, saturation)
                for i, each in enumerate(priorities)]
