"""`round_robin`: one replica after the other.

`split_wise` is its name in vidur-alibabacloud (SimAI cef83f9d): round robin over the prefill replicas, and over the
decode replicas, both chosen when a request arrives. Source: its
vidur/scheduler/global_scheduler/splitwise_global_scheduler.py.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.draws cimport mix
from simulator.core.hash_map cimport HashMap
from simulator.routing.base cimport Router
from simulator.routing.parts.open_replicas cimport OpenReplicas

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class RoundRobinParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request i, in order of arrival, goes to replica i mod n.

    Source: the definition; for counter = "open_set" RoundRobinRouter of vllm-project/production-stack at a6c01db0
    (src/vllm_router/routers/routing_logic.py).
    """

    counter: Annotated[Literal["replica", "open_set"], Meta(description=(
        "replica: the next one after the last choice; open_set: each set of open replicas has a count of its own "
        "requests, and request i of it goes to its replica i mod n"))] = "replica"


@cython.final
cdef class RoundRobin(Router):
    """One replica after the other; closed ones are passed over."""

    Parameters = RoundRobinParameters

    cdef int32_t _next          # the replica that gets the next request, if it is open
    cdef OpenReplicas _open     # None: there is one counter, like _counts
    cdef HashMap _counts        # hash of a set of open replicas -> place in it of its next request

    def __init__(self, parameters, context):
        if parameters.counter == "open_set":
            self._open, self._counts = OpenReplicas(self.view), HashMap()

    cdef int32_t _next_of_set(self) except -2 nogil:
        """Return the next replica of the set of open replicas; -1: none is open."""
        cdef uint64_t code = 1          # of the set: chance collisions as in kv/content.pxd
        cdef int32_t place, i
        self._open.refresh()
        if self._open.size == 0:
            return -1
        for i in range(self._open.size):
            code = mix(code ^ <uint64_t>self._open.at[i])
        place = max(self._counts.get(code), 0)
        self._counts.put(code, place + 1 if place + 1 < self._open.size else 0)
        return self._open.at[place]

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen = self._next, passed_over = 0
        if self._open is not None:
            return self._next_of_set()
        while not self.view.accounts[chosen].is_routable:
            chosen = chosen + 1 if chosen + 1 < self.num_replicas else 0
            passed_over += 1
            if passed_over == self.num_replicas:
                return -1
        self._next = chosen + 1 if chosen + 1 < self.num_replicas else 0
        return chosen
