"""`power_of_two`: the less loaded of two replicas drawn at random."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.parts.load cimport WAITING, Load, load_named, load_of
from simulator.routing.parts.open_replicas cimport OpenReplicas

import msgspec

from simulator.routing.parts.load import LoadName


class PowerOfTwoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two different replicas are drawn; the one with less load wins.

    If they are equal, the first drawn.
    Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, IEEE TPDS 2001; power_of_two of the
    vLLM router and power-of-two of AIBrix. SGLang's gateway (0.3.2) compares metric = "reported_tokens" with
    snapshot_refresh_interval_s = 1.
    """

    metric: LoadName = "requests"

    @property
    def reads_expected_tokens(self):
        """Say whether predictions of output lengths matter."""
        return self.metric == "expected_tokens"


@cython.final
cdef class PowerOfTwo(Router):
    """The less loaded of two replicas, for any number of replicas."""

    Parameters = PowerOfTwoParameters

    cdef Load _kind
    cdef OpenReplicas _open

    def __init__(self, parameters, context):
        self._kind = load_named(parameters.metric, self.view)
        self._open = OpenReplicas(self.view)
        self.reads_state = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t first, second, size
        if self._kind >= WAITING:
            self.view.look(now_ns)
        self._open.refresh()
        size = self._open.size
        if size < 2:
            return self._open.at[0] if size else -1
        first = self.draws.below(size)
        second = self.draws.below(size - 1)
        second += second >= first
        first, second = self._open.at[first], self._open.at[second]
        return second if load_of(self._kind, self.view, second) < load_of(self._kind, self.view, first) else first
