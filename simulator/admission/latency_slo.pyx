"""`latency_slo`: sheddable requests are let in where a replica is predicted to keep their targets."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.base cimport Admission
from simulator.signals.load cimport kv_usage
from simulator.signals.predicted cimport Prices, predicted_tpot_us, predicted_ttft_us

import msgspec
from msgspec import Meta
import numpy as np

from simulator.domain.slo_classes import class_of

PriceUs = Annotated[float, Meta(ge=0, le=1e9)]
BoundMs = Annotated[float, Meta(gt=0, le=1e9)]


class LatencySloParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let priorities below 0 in if some replica is idle or predicted to be in time.

    Idle: no request in flight, or a share of KV blocks in use below idle_kv_usage. Predicted TTFT =
    per_prefill_token_us x (prompt tokens that wait or run there + those of this request) + one step; predicted TPOT =
    one step = base_us + per_sequence_us x (waiting + running + 1); both within the targets of the request's SLO class,
    or of the keys where it has none. Source: latency-slo admitter of llm-d-router ebab6879; its predictor is a trained
    model, this formula is a line in its place.
    """

    ttft_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time to first token of requests with a class without one"))] = 500.0
    tpot_slo_ms: Annotated[BoundMs, Meta(description=(
        "target of the time per output token of requests with a class without one"))] = 50.0
    idle_kv_usage: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of KV blocks in use below which a replica takes any request"))] = 0.02
    base_us: Annotated[PriceUs, Meta(description="time of an iteration")] = 5000.0
    per_sequence_us: Annotated[PriceUs, Meta(description="time per request that waits or runs")] = 10.0
    per_prefill_token_us: Annotated[PriceUs, Meta(description="time per prompt token")] = 20.0


@cython.final
cdef class LatencySlo(Admission):
    """Sheddable requests come in only if a replica is predicted to be in time."""

    Parameters = LatencySloParameters

    cdef double _idle_kv_usage
    cdef Prices _prices
    cdef const double* _targets_us      # [class + 1][TTFT, TPOT]; the first is that of requests without a class
    cdef object _arrays                 # owners of this memory

    def __init__(self, parameters, context):
        cdef const double[:, ::1] targets
        classes = [class_of(name, context.classes) for name in (None, *context.workload.labels.get("slo_class", ()))]
        self._arrays = 1e3 * np.array([(each.ttft_ms or parameters.ttft_slo_ms, each.tpot_ms or parameters.tpot_slo_ms)
                                       for each in classes])
        targets = self._arrays
        self._targets_us = &targets[0, 0]
        self._idle_kv_usage = parameters.idle_kv_usage
        self._prices = Prices(parameters.base_us, parameters.per_sequence_us, parameters.per_prefill_token_us)
        self.reads_state = self.view.wants_counts = self.view.wants_blocks = True

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if not self.classes.is_sheddable(row):
            return 1
        self.view.look(now_ns)
        for i in range(self.view.num_replicas):
            if self.view.accounts[i].is_routable and self._takes(row, i):
                return 1
        return 0

    cdef inline bint _takes(self, int32_t row, int32_t replica) noexcept nogil:
        cdef const double* target_us = &self._targets_us[2 * (self.demands[row].slo_class + 1)]
        cdef double tpot_us
        if self.view.accounts[replica].in_flight == 0 or kv_usage(self.view, replica) < self._idle_kv_usage:
            return True
        tpot_us = predicted_tpot_us(self.view, replica, &self._prices)
        return tpot_us <= target_us[1] and predicted_ttft_us(
            self.view, replica, self.requests[row].prompt_tokens, tpot_us, &self._prices) <= target_us[0]
