"""`latency-headroom`: how far a predicted latency stays below its target."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.signals.predicted cimport Prices, predicted_tpot_us, predicted_ttft_us
from simulator.routing.scoring.base cimport Scorer

PriceUs = Annotated[float, Meta(ge=0, le=1e9)]
BoundMs = Annotated[float, Meta(gt=0, le=1e9)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]


class LatencyHeadroomParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score the margin left below the latency targets.

    Predicted TTFT = per_prefill_token_us x (prompt tokens that wait or run there + those of this request) + one step;
    predicted TPOT = one step = base_us + per_sequence_us x (waiting + running + 1).
    h = ttft_weight x (1 - TTFT / ttft_slo_ms) + tpot_weight x (1 - TPOT / tpot_slo_ms), the weights made to sum to 1.
    Replicas that keep both targets score 0.5 to 1, by the rank of h between the extremes among them: the least h is
    best (least: pack), or the most (most: spread). Others score 0 to 0.5, the most h best.
    Source: the latency-scorer of llm-d (0.8 and 0.2, least or most); its predictor is a trained model, this formula is
    a line in its place, with the prices of the backend `linear`. There is always a prediction, so its rule without
    one is not needed.
    """

    ttft_slo_ms: Annotated[BoundMs, Meta(description="target of the time to first token")] = 500.0
    tpot_slo_ms: Annotated[BoundMs, Meta(description="target of the time per output token")] = 50.0
    ttft_weight: Annotated[Weight, Meta(description="weight of the headroom in TTFT")] = 0.8
    tpot_weight: Annotated[Weight, Meta(description="weight of the headroom in TPOT")] = 0.2
    strategy: Annotated[Literal["least", "most"], Meta(description=(
        "preferred headroom among replicas that keep the targets"))] = "least"
    prefer_idle: Annotated[bool, Meta(description=(
        "where no candidate keeps both targets, only those without a request in flight score above 0, if there are "
        "any, as in llm-d-router"))] = False
    base_us: Annotated[PriceUs, Meta(description="time of an iteration")] = 5000.0
    per_sequence_us: Annotated[PriceUs, Meta(description="time per request that waits or runs")] = 10.0
    per_prefill_token_us: Annotated[PriceUs, Meta(description="time per prompt token")] = 20.0

    def __post_init__(self):
        if self.ttft_weight + self.tpot_weight <= 0:
            raise ValueError("ttft_weight, tpot_weight: one of them must be > 0")


@cython.final
cdef class LatencyHeadroom(Scorer):
    """A replica that will just keep the targets is better; or by far."""

    Parameters = LatencyHeadroomParameters

    cdef double _ttft_us, _tpot_us              # targets
    cdef double _ttft_weight, _tpot_weight
    cdef Prices _prices
    cdef bint _is_least, _prefers_idle
    cdef int32_t* _keeps                        # [replica] both targets

    def __cinit__(self, parameters, context):
        self._keeps = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._keeps == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        cdef double weights = parameters.ttft_weight + parameters.tpot_weight
        self._ttft_us, self._tpot_us = 1e3 * parameters.ttft_slo_ms, 1e3 * parameters.tpot_slo_ms
        self._ttft_weight, self._tpot_weight = parameters.ttft_weight / weights, parameters.tpot_weight / weights
        self._prices = Prices(parameters.base_us, parameters.per_sequence_us, parameters.per_prefill_token_us)
        self._prefers_idle = parameters.prefer_idle
        self._is_least = parameters.strategy == "least"
        self.is_per_request = True
        self.view.wants_counts = True

    def __dealloc__(self):
        free(self._keeps)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double[2] low
        cdef double[2] high
        cdef double share
        cdef int32_t i, k
        cdef bint is_idle_alone = self._compare(row)
        low[0] = low[1] = INFINITY
        high[0] = high[1] = -INFINITY
        for i in range(self.num_replicas):
            if self._competes(i, is_idle_alone):
                k = self._keeps[i]
                low[k], high[k] = min(low[k], self.values[i]), max(high[k], self.values[i])
        for i in range(self.num_replicas):
            k = self._keeps[i]
            if not self._competes(i, is_idle_alone):
                self.values[i] = 0.0
            else:
                share = (self.values[i] - low[k]) / (high[k] - low[k]) if high[k] > low[k] else 1.0
                if k and self._is_least and high[k] > low[k]:
                    share = 1.0 - share
                self.values[i] = 0.5 * k + 0.5 * share
        return 1

    cdef bint _compare(self, int32_t row) noexcept nogil:
        """Predict all candidates; return whether only idle ones are to score above 0."""
        cdef int32_t num_good = 0, num_idle = 0, i
        for i in range(self.num_replicas):
            if self.takes_part(i):
                self.values[i] = self._headroom(row, i)
                num_good += self._keeps[i]
                num_idle += self.view.accounts[i].in_flight == 0
        return self._prefers_idle and num_good == 0 and num_idle > 0

    cdef inline bint _competes(self, int32_t replica, bint is_idle_alone) noexcept nogil:
        return self.takes_part(replica) and not (is_idle_alone and self.view.accounts[replica].in_flight > 0)

    cdef double _headroom(self, int32_t row, int32_t replica) noexcept nogil:
        cdef double tpot_us = predicted_tpot_us(self.view, replica, &self._prices)
        cdef double ttft_us = predicted_ttft_us(self.view, replica, self.requests[row].prompt_tokens, tpot_us,
                                                &self._prices)
        self._keeps[replica] = ttft_us <= self._ttft_us and tpot_us <= self._tpot_us
        return (self._ttft_weight * (1.0 - ttft_us / self._ttft_us)
                + self._tpot_weight * (1.0 - tpot_us / self._tpot_us))
