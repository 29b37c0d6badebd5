"""`slo-headroom-tier`: replicas that are predicted to keep the targets of the request."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta
import numpy as np

from simulator.routing.filters.base cimport Filter
from simulator.routing.parts.attribute cimport has_reported
from simulator.signals.predicted cimport Prices, predicted_tpot_us, predicted_ttft_us

from simulator.domain.slo_classes import class_of

PriceUs = Annotated[float, Meta(ge=0, le=1e9)]
BoundMs = Annotated[float, Meta(gt=0, le=1e9)]


class SloHeadroomTierParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep replicas that are predicted to keep the targets of the request.

    Predicted TTFT = per_prefill_token_us x (prompt tokens that wait or run there + those of this request) + one step;
    predicted TPOT = one step = base_us + per_sequence_us x (waiting + running + 1). A replica is good if both are
    within the targets of the request's SLO class; a target that the class lacks is that of the key. A replica that
    never reported is not good. If some are good and some are not: the good ones stay, but for a share of requests the
    others. Source: slo-headroom-tier-filter of llm-d-router ebab6879; its predictor is a trained model, this formula is
    a line in its place.
    """

    explore_share: Annotated[float, Meta(ge=0, le=1, description=(
        "share of requests, drawn, that keep only replicas that are not good"))] = 0.01
    ttft_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time to first token of requests with a class without one"))] = 500.0
    tpot_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time per output token of requests with a class without one"))] = 50.0
    base_us: Annotated[PriceUs, Meta(description="time of an iteration")] = 5000.0
    per_sequence_us: Annotated[PriceUs, Meta(description="time per request that waits or runs")] = 10.0
    per_prefill_token_us: Annotated[PriceUs, Meta(description="time per prompt token")] = 20.0


@cython.final
cdef class SloHeadroomTier(Filter):
    """Replicas that are predicted to keep the targets of the request."""

    Parameters = SloHeadroomTierParameters

    cdef double _explore
    cdef Prices _prices
    cdef const double* _targets_us      # [class + 1][TTFT, TPOT]; the first is that of requests without a class
    cdef object _arrays                 # owners of this memory

    def __init__(self, parameters, context):
        cdef const double[:, ::1] targets
        classes = [class_of(name, context.classes or {})
                   for name in (None, *context.workload.labels.get("slo_class", ()))]
        self._arrays = 1e3 * np.array([(each.ttft_ms or parameters.ttft_slo_ms, each.tpot_ms or parameters.tpot_slo_ms)
                                       for each in classes])
        targets = self._arrays
        self._targets_us = &targets[0, 0]
        self._explore = parameters.explore_share
        self._prices = Prices(parameters.base_us, parameters.per_sequence_us, parameters.per_prefill_token_us)
        self.view.wants_counts = True

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        cdef int32_t num_good = 0, num_kept = 0, i
        cdef bint is_good_tier
        for i in range(count):
            num_good += self._is_good(row, candidates[i])
        if num_good == 0 or num_good == count:
            return count
        is_good_tier = not (self._explore > 0 and self.uniform(row) < self._explore)
        for i in range(count):
            if self._is_good(row, candidates[i]) == is_good_tier:
                candidates[num_kept] = candidates[i]
                num_kept += 1
        return num_kept

    cdef inline bint _is_good(self, int32_t row, int32_t replica) noexcept nogil:
        cdef const double* target_us = &self._targets_us[2 * (self.demands[row].slo_class + 1)]
        cdef double tpot_us
        if not has_reported(self.view, replica):
            return False
        tpot_us = predicted_tpot_us(self.view, replica, &self._prices)
        return tpot_us <= target_us[1] and predicted_ttft_us(
            self.view, replica, self.requests[row].prompt_tokens, tpot_us, &self._prices) <= target_us[0]
