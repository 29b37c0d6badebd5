"""Filters by the load of a replica: conditions of a user, and the saturation detectors of a gateway queue."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.routing.filters.base cimport EachAlone
from simulator.signals.load cimport kv_usage

Requests = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Usage = Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"})]
Headroom = Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "share"}, description=(
    "share by which a single replica may exceed the thresholds before it is left out"))]
StalenessS = Annotated[float, Meta(ge=0, le=1e6, description=(
    "age of a report above which a replica counts as full; llm-d: 0.2; 0: any age"))]
FallBack = Annotated[bool, Meta(description=(
    "keep all candidates if none meets the conditions; false: then the request gets no replica"))]


class UtilizationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the replicas where every given number is at most its bound.

    A replica that never reported has 0. Source: utilization-filter of llm-d-router ebab6879.
    """

    max_active_requests: Annotated[Requests | None, Meta(description=(
        "most requests in flight, on the gateway's own account; absent: any"))] = None
    max_running_requests: Annotated[Requests | None, Meta(description=(
        "most running requests, as reported; absent: any"))] = None
    max_waiting_requests: Annotated[Requests | None, Meta(description=(
        "most waiting requests, as reported; absent: any"))] = None
    max_kv_usage: Annotated[Usage | None, Meta(description=(
        "largest share of KV blocks in use, as reported; absent: any"))] = None
    fallback_on_empty: FallBack = False

    def __post_init__(self):
        if all(getattr(self, name) is None for name in self.__struct_fields__ if name.startswith("max_")):
            raise ValueError("give at least one of max_active_requests, max_running_requests, max_waiting_requests, "
                             "max_kv_usage: without any the filter keeps all")


cdef struct Bounds:
    int64_t active
    int64_t running
    int64_t waiting
    double kv_usage


@cython.final
cdef class Utilization(EachAlone):
    """Replicas with all numbers within bounds."""

    Parameters = UtilizationParameters

    cdef Bounds _most

    def __init__(self, parameters, context):
        counts = [parameters.max_active_requests, parameters.max_running_requests, parameters.max_waiting_requests]
        self._most.active, self._most.running, self._most.waiting = [
            2**62 if each is None else each for each in counts]
        self._most.kv_usage = 2.0 if parameters.max_kv_usage is None else parameters.max_kv_usage
        self.falls_back = parameters.fallback_on_empty
        self.view.wants_counts |= counts[1:] != [None, None]
        self.view.wants_blocks |= parameters.max_kv_usage is not None

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        return (self.view.accounts[replica].in_flight <= self._most.active
                and self.view.states[replica].running <= self._most.running
                and self.view.states[replica].waiting <= self._most.waiting
                and kv_usage(self.view, replica) <= self._most.kv_usage)


class UtilizationDetectorParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leave out replicas with a long queue, a full KV cache, or an old report.

    A replica is left out if waiting > queue_depth_threshold (1 + headroom), or if its share of KV blocks in use >
    min(1, kv_usage_threshold (1 + headroom)). If all are, all stay. Source: utilization-detector of llm-d-router
    ebab6879, used as a filter.
    """

    queue_depth_threshold: Annotated[float, Meta(gt=0, le=1e9, description="waiting requests of a full replica")] = 5.0
    kv_usage_threshold: Annotated[float, Meta(gt=0, le=1, description=(
        "share of KV blocks in use of a full replica"))] = 0.8
    headroom: Headroom = 0.0
    staleness_s: StalenessS = 0.0


@cython.final
cdef class UtilizationDetector(EachAlone):
    """Replicas that are not full, as they report."""

    Parameters = UtilizationDetectorParameters

    cdef double _waiting, _kv_usage
    cdef int64_t _staleness_ns          # 0: reports of any age count

    def __init__(self, parameters, context):
        self._waiting = parameters.queue_depth_threshold * (1 + parameters.headroom)
        self._kv_usage = min(1.0, parameters.kv_usage_threshold * (1 + parameters.headroom))
        self._staleness_ns = ns_from_s(parameters.staleness_s)
        self.falls_back = True
        self.view.wants_counts = self.view.wants_blocks = True
        self.view.wants_times |= self._staleness_ns > 0

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        return (self.view.states[replica].waiting <= self._waiting and kv_usage(self.view, replica) <= self._kv_usage
                and (self._staleness_ns == 0 or now_ns - self.view.states[replica].time_ns <= self._staleness_ns))


class ConcurrencyDetectorParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leave out replicas with more in flight than a capacity.

    A replica is left out if its requests in flight > max_concurrency (1 + headroom); with mode = "tokens", if its
    prompt tokens in flight > max_tokens (1 + headroom); hybrid: for either reason. If all are, all stay. Source:
    concurrency-detector of llm-d-router ebab6879, used as a filter.
    """

    mode: Annotated[Literal["requests", "tokens", "hybrid"], Meta(description=(
        "numbers that make a replica full: requests in flight, their prompt tokens, or either"))] = "requests"
    max_concurrency: Annotated[int, Meta(ge=1, le=2**31 - 1, description="requests in flight of a full replica")] = 100
    max_tokens: Annotated[int, Meta(ge=1, le=2**40, description=(
        "prompt tokens in flight of a full replica"))] = 1_000_000
    headroom: Headroom = 0.0


@cython.final
cdef class ConcurrencyDetector(EachAlone):
    """Replicas that are not full, by the gateway's own account."""

    Parameters = ConcurrencyDetectorParameters

    cdef double _requests, _tokens

    def __init__(self, parameters, context):
        most = float("inf")
        self._requests = most if parameters.mode == "tokens" else parameters.max_concurrency * (1 + parameters.headroom)
        self._tokens = most if parameters.mode == "requests" else parameters.max_tokens * (1 + parameters.headroom)
        self.falls_back = True

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        return (self.view.accounts[replica].in_flight <= self._requests
                and <double>self.view.accounts[replica].in_flight_tokens <= self._tokens)
