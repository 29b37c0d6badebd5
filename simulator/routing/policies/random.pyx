"""`random`: any replica, each with the same chance."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.parts.open_replicas cimport OpenReplicas

import msgspec


class RandomParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One uniform draw a request. Source: the definition."""


@cython.final
cdef class Random(Router):
    """Any replica that is open, each with the same chance."""

    Parameters = RandomParameters

    cdef OpenReplicas _open

    def __init__(self, parameters, context):
        self._open = OpenReplicas(self.view)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self._open.refresh()
        return self._open.at[self.draws.below(self._open.size)] if self._open.size > 0 else -1
