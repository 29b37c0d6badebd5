"""Headroom of urgent requests: KV that `freeness` counts as taken at their replica, beside their own.

Source: Sun et al., Llumnix, OSDI 2024, section 4.4: the virtual usage of a request of high priority is its own and
headroom(priority) / requests of that priority at its replica, so that all of one priority add the headroom once.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from simulator.domain.request cimport COMPLETED, PENDING

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault


class HeadroomSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The headroom of one priority."""

    priority: Annotated[int, Meta(ge=-2**31, le=2**31 - 1, description="priority of the requests that it is for")]
    tokens: Annotated[int, Meta(ge=1, le=2**40, extra={"unit": "tokens"}, description=(
        "KV tokens that freeness counts as taken, beside those in use, at each replica with a request of it"))]


HeadroomSpecs = Annotated[list[HeadroomSpec], Meta(max_length=64, description=(
    "room that replicas keep for urgent requests; counted by the metric freeness alone; empty: none"))]


@cython.final
cdef class Headroom:
    """Sums of headroom by replica; see `count`.

    specs : HeadroomSpec of each priority. context : RoutingContext.
    """

    def __cinit__(self, specs, context):
        self.seen = <int64_t*>calloc(context.view.num_replicas, sizeof(int64_t))
        self.pushed = <int64_t*>calloc(context.view.num_replicas, sizeof(int64_t))
        if self.seen == NULL or self.pushed == NULL:
            raise MemoryError()

    def __init__(self, specs, context):
        cdef const Request[::1] rows
        cdef int32_t i
        workload, view = context.workload, context.view
        level_of = np.full(len(workload.requests), -1, np.int8)
        for level, spec in enumerate(specs):
            level_of[workload.demands["priority"] == spec.priority] = level
        self._level_of, self._rows = level_of, np.flatnonzero(level_of >= 0).astype(np.int32)
        self._tokens = np.array([spec.tokens for spec in specs], np.int64)
        self._owner, self._view = workload.requests, view
        if len(workload.requests):
            rows = workload.requests
            self._requests = &rows[0]
        replicas = [self._view.accounts[i].replica for i in range(view.num_replicas)]
        place_of = np.full(max(replicas) + 1, -1, np.int32)
        place_of[replicas] = np.arange(len(replicas))
        self._place_of, self._is_here = place_of, np.zeros((len(replicas), len(specs)), np.int8)
        self._is_in_order = workload.script is None

    def __dealloc__(self):
        free(self.seen)
        free(self.pushed)

    cdef void count(self) noexcept nogil:
        """Add up headroom: of each priority once, if a request is at the replica, or on the way there."""
        cdef int32_t k, place
        cdef int8_t level
        cdef const Request* request
        memset(self.seen, 0, self._view.num_replicas * sizeof(int64_t))
        memset(&self._is_here[0, 0], 0, self._is_here.shape[0] * self._is_here.shape[1])
        for k in range(<int32_t>self._rows.shape[0]):
            request = &self._requests[self._rows[k]]
            if request.status == PENDING and self._is_in_order:
                break
            if (request.status == PENDING or request.status >= COMPLETED
                    or not 0 <= request.replica < self._place_of.shape[0]):
                continue
            place, level = self._place_of[request.replica], self._level_of[self._rows[k]]
            if place >= 0 and not self._is_here[place, level]:
                self._is_here[place, level] = True
                self.seen[place] += self._tokens[level]

    cdef void push(self) noexcept nogil:
        memcpy(self.pushed, self.seen, self._view.num_replicas * sizeof(int64_t))


def headroom_faults(specs: list[HeadroomSpec], metrics: Any, context: Any) -> list[str]:
    """Return the faults of a headroom, from its key on.

    metrics : names of all that are computed.
    """
    cdef View view = context.view
    cdef int32_t i
    priorities = [spec.priority for spec in specs]
    faults = [f"headroom: priority {priority} is given twice" for priority in dict.fromkeys(priorities)
              if priorities.count(priority) > 1]
    if specs and "freeness" not in metrics:
        faults.append('headroom: nothing counts it: the metric "freeness" alone does, and no filter, selector or '
                      "policy here uses that metric")
    if specs and any(view.accounts[i].infer_type for i in range(view.num_replicas)):
        faults.append("headroom: with pools for prefill and decode it is not supported: in Llumnix's paper replicas "
                      "serve whole requests")
    return faults


def headroom_of(table: str, parameters: Any, metrics: Any, context: Any) -> Headroom | None:
    """Return the headroom of the parameters of a router or rescheduler.

    None: they give none.

    Raises InputErrors: it cannot act.
    """
    faults = headroom_faults(parameters.headroom, metrics, context)
    if faults:
        raise InputErrors([KeyFault(f"{table}.{fault}") for fault in faults])
    return Headroom(parameters.headroom, context) if parameters.headroom else None
