"""`lor`: least outstanding requests, the first replica among equals, as Vidur has it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.parts.least_load cimport LeastLoad

from typing import Annotated

import msgspec
from msgspec import Meta


class LorParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choice of the requests that count as a replica's load.

    The default is also the rule of least-busy of LiteLLM 1.110.2, which counts its picks at once.
    Source: the behaviour of microsoft/vidur at 7d47513, scheduler/global_scheduler/lor_global_scheduler.py.
    """

    upstream_compat: Annotated[bool, Meta(description=(
        "as Vidur, count only requests that wait at a replica, so that the first replica gets all while none waits; "
        "else all requests sent there that have not left"))] = False


@cython.final
cdef class Lor(Router):
    """The replica with the fewest requests; draws nothing, unlike `least_loaded`."""

    Parameters = LorParameters

    cdef LeastLoad _least

    def __init__(self, parameters, context):
        self._least = LeastLoad(self.view, "waiting" if parameters.upstream_compat else "requests")
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self._least.refresh(now_ns)
        return self._least.first()

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.sent(replica)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.left(replica)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self._least.refresh(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._least.load(i)
        return 0
