"""`slo-headroom-tier`: replicas that are predicted to keep the targets of the request."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

from msgspec import Meta

from simulator.routing.filters.base cimport Filter
from simulator.routing.parts.attribute cimport has_reported
from simulator.signals.predicted cimport InTime

from simulator.domain.latency_line import LatencyLine


class SloHeadroomTierParameters(LatencyLine, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


@cython.final
cdef class SloHeadroomTier(Filter):
    """Replicas that are predicted to keep the targets of the request."""

    Parameters = SloHeadroomTierParameters

    cdef double _explore
    cdef InTime _in_time

    def __init__(self, parameters, context):
        self._in_time = InTime(context.workload, context.classes, parameters)
        self._explore = parameters.explore_share
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
        return has_reported(self.view, replica) and self._in_time.holds(
            self.view, self.demands[row].slo_class, self.requests[row].prompt_tokens, replica)
