"""`slo_least_load` and `slo_pack_load`: by the shares of a replica that its requests take within their targets."""
from libc.math cimport INFINITY, log2
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.request cimport Demand
from simulator.routing.base cimport Router

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Concurrency = Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "requests"})]


class LoadRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of one size that a replica serves at once within their targets."""

    prompt_tokens: Annotated[Count, Meta(description="prompt tokens of a request")]
    output_tokens: Annotated[Count, Meta(description="output tokens of a request")]
    concurrency: Annotated[Concurrency, Meta(description=(
        "requests at once, of this size alone: measured requests/s within the targets x mean latency"))]


class _SloLoadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profile: Annotated[tuple[LoadRow, ...], Meta(description=(
        "sizes of requests with their concurrency; the row that is nearest in log2 counts for a request; absent: "
        "usual_concurrency for all"))] = ()
    usual_concurrency: Annotated[Concurrency, Meta(description=(
        "concurrency of requests without a profile"))] = 64.0

    def __post_init__(self):
        concurrency = max([row.concurrency for row in self.profile] or [self.usual_concurrency])
        if self.cap is not None and 1 / concurrency > self.cap:
            raise ValueError(f"cap: {self.cap} is below 1 / {concurrency:g}, the least load of a request: no "
                             "replica would ever take one")

    @property
    def uses_expected_tokens(self):
        """Say whether predictions of output lengths matter, if there are any."""
        return bool(self.profile)


class SloLeastLoadParameters(_SloLoadParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least load wins, the highest number of several.

    The load of a replica is the sum of 1 / concurrency of its requests in flight. With a cap, replicas that the request
    would take above it are left out, and a request without a replica is retried or refused. The output length is the
    predicted one, without a prediction max_tokens.
    Source: slo-least-load and, with cap = 1, slo-least-load-pulling of vllm-project/aibrix at e3e10f9e
    (pkg/plugins/gateway/algorithms/least_load.go); its profile of a GPU has requests/s and latencies by size. The
    queue by slack in front of that router is [cluster.gateway_queue] with order = "slack".
    """

    cap: Annotated[Annotated[float, Meta(gt=0, le=1e6)] | None, Meta(extra={"unit": "share"}, description=(
        "largest load of a replica, with the request; absent: none"))] = None


class SloPackLoadParameters(_SloLoadParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest load below the cap wins, the lowest number of several.

    Loads are those of slo_least_load, with the request; replicas above the cap are left out, and a request without a
    replica is retried or refused.
    Source: slo-pack-load of vllm-project/aibrix at e3e10f9e (pkg/plugins/gateway/algorithms/pack_load.go).
    """

    cap: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "share"}, description=(
        "largest load of a replica, with the request"))] = 1.0


cdef int64_t WHOLE = 1000000000         # a load of 1: sums of whole numbers are exact


cdef class SloLoad(Router):
    """Base of routers by the loads of replicas."""

    cdef int64_t* _loads                # [replica] in units of 1 / WHOLE
    cdef const double[:, ::1] _rows     # log2 of prompt and output tokens, by row of the profile
    cdef const int64_t[::1] _shares     # by row of the profile
    cdef int64_t _usual_share
    cdef int64_t _cap                   # below 0: none

    def __cinit__(self, parameters, context):
        self._loads = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        if self._loads == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._rows = np.log2([(row.prompt_tokens, row.output_tokens) for row in parameters.profile] or [(1, 1)])
        # Rounded down, so that as many requests as the concurrency says fit below a load of 1.
        self._shares = np.array([int(WHOLE / row.concurrency) for row in parameters.profile], np.int64)
        self._usual_share = int(WHOLE / parameters.usual_concurrency)
        self._cap = -1 if parameters.cap is None else round(WHOLE * parameters.cap)
        self.reads_state = self.has_scores = True

    def __dealloc__(self):
        free(self._loads)

    cdef int64_t share_of(self, int32_t row) noexcept nogil:
        """Return the load of a request."""
        cdef const Demand* demand = &self.demands[row]
        cdef int32_t i, nearest = 0, output = demand.expected_tokens if demand.expected_tokens >= 0 else (
            demand.max_tokens)
        cdef double distance, least = INFINITY, x = log2(max(self.requests[row].prompt_tokens, 1)), y = log2(
            max(output, 1))
        if self._shares.shape[0] == 0:
            return self._usual_share
        for i in range(<int32_t>self._shares.shape[0]):
            distance = (self._rows[i, 0] - x) * (self._rows[i, 0] - x) + (self._rows[i, 1] - y) * (self._rows[i, 1] - y)
            if distance < least:
                nearest, least = i, distance
        return self._shares[nearest]

    cdef bint fits(self, int32_t replica, int64_t share) noexcept nogil:
        """Return whether a request may go to a replica."""
        return self.view.accounts[replica].is_routable and (
            self._cap < 0 or self._loads[replica] + share <= self._cap)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._loads[replica] += self.share_of(row)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._loads[replica] -= self.share_of(row)
        return 0


@cython.final
cdef class SloLeastLoad(SloLoad):
    """The least loaded replica."""

    Parameters = SloLeastLoadParameters

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int64_t share = self.share_of(row)
        cdef int32_t best = -1, i
        for i in range(self.num_replicas):
            if self.fits(i, share) and (best < 0 or self._loads[i] <= self._loads[best]):
                best = i
        return best

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int64_t share = self.share_of(row)
        cdef int32_t i
        for i in range(self.num_replicas):
            scores[i] = -<double>self._loads[i] / WHOLE if self.fits(i, share) else -INFINITY
        return 0


@cython.final
cdef class SloPackLoad(SloLoad):
    """The most loaded replica with room."""

    Parameters = SloPackLoadParameters

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int64_t share = self.share_of(row)
        cdef int32_t best = -1, i
        for i in range(self.num_replicas):
            if self.fits(i, share) and (best < 0 or self._loads[i] > self._loads[best]):
                best = i
        return best

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int64_t share = self.share_of(row)
        cdef int32_t i
        for i in range(self.num_replicas):
            scores[i] = <double>(self._loads[i] + share) / WHOLE if self.fits(i, share) else -INFINITY
        return 0
