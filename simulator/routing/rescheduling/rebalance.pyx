"""`rebalance`: moves the newest running request from the fullest replica to the emptiest.

Full is by KV blocks in use, reserved ones included, as a share of all.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.rescheduling.base cimport LCR, NUM_REQ, Rescheduler, Selection
from simulator.signals.load cimport kv_usage

from typing import Annotated

import msgspec
from msgspec import Meta


class RebalanceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a request moves, and how many at once."""

    least_difference: Annotated[float, Meta(ge=0, le=1, extra={"unit": "fraction"}, description=(
        "least difference of the shares of KV blocks in use between two replicas"))] = 0.2
    num_requests: Annotated[int, Meta(ge=1, le=2**20, description="requests that move at a time")] = 1


@cython.final
cdef class Rebalance(Rescheduler):
    """Every half second, unless `interval_s` is given; see `RebalanceParameters`."""

    Parameters = RebalanceParameters

    cdef double _least_difference
    cdef Selection _selection

    def __init__(self, parameters, context):
        self.interval_ns = 500_000_000
        self.view.wants_levels = True
        self._least_difference = parameters.least_difference
        self._selection.rule, self._selection.order = NUM_REQ, LCR
        self._selection.value = parameters.num_requests

    cdef int plan(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, fullest = -1, emptiest = -1
        cdef double share, most = -1.0, least = 2.0
        self.num_moves = 0
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable:
                continue
            share = kv_usage(self.view, i)
            if share > most:
                fullest, most = i, share
            if share < least:
                emptiest, least = i, share
        if most - least > self._least_difference:
            self.add_move(fullest, emptiest, 0, &self._selection)
        return 0
