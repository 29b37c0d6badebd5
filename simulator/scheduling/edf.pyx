"""`edf`: earliest deadline first.

The request that is due soonest is admitted first, and where blocks run out the request that is due last is preempted.
A request is due when its client wants the whole answer, else when its client gives up, else `default_deadline_ms` after
it arrived. Source: Liu and Layland, Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment, J. ACM
20(1), 1973, section 7; but between iterations, and without preemption for a place in the running list (see ranked.pyx).
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Demand
from simulator.scheduling.ranked cimport Ranked, RequestRanking

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters


class EdfParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and the deadline of requests that have none."""

    default_deadline_ms: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description=(
        "deadline of a request that has none, in ms after its arrival; absent: after all other requests"))] = None


@cython.final
cdef class DeadlineRanking(RequestRanking):
    """Keys are instants in ns."""

    cdef int64_t default_ns             # deadline after arrival of a request without one; -1: after all others

    cdef int64_t key(self, int32_t row) noexcept nogil:
        cdef const Demand* demand = &self.demands[row]
        if demand.due_ns >= 0:
            return demand.due_ns
        if demand.deadline_ns >= 0:
            return demand.deadline_ns
        return self.requests[row].arrival_ns + self.default_ns if self.default_ns >= 0 else INT64_MAX


@cython.final
cdef class Edf(Ranked):
    """The earliest deadline first; see `EdfParameters`."""

    Parameters = EdfParameters

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        cdef DeadlineRanking ranking = DeadlineRanking(context)
        default_ms = parameters.default_deadline_ms
        ranking.default_ns = -1 if default_ms is None else round(default_ms * 1e6)
        self._evicts_last_ranked = True
        self._rank_by(context, ranking)
