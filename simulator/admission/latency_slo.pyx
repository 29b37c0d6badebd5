"""`latency_slo`: sheddable requests are let in where a replica is predicted to keep their targets."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.base cimport Admission
from simulator.signals.load cimport kv_usage
from simulator.signals.predicted cimport InTime

from msgspec import Meta

from simulator.domain.latency_line import LatencyLine


class LatencySloParameters(LatencyLine, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let priorities below 0 in if some replica is idle or predicted to be in time.

    Idle: no request in flight, or a share of KV blocks in use below idle_kv_usage. Predicted TTFT =
    per_prefill_token_us x (prompt tokens that wait or run there + those of this request) + one step; predicted TPOT =
    one step = base_us + per_sequence_us x (waiting + running + 1); both within the targets of the request's SLO class,
    or of the keys where it has none. Source: latency-slo admitter of llm-d-router ebab6879; its predictor is a trained
    model, this formula is a line in its place.
    """

    idle_kv_usage: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of KV blocks in use below which a replica takes any request"))] = 0.02


@cython.final
cdef class LatencySlo(Admission):
    """Sheddable requests come in only if a replica is predicted to be in time."""

    Parameters = LatencySloParameters

    cdef double _idle_kv_usage
    cdef InTime _in_time

    def __init__(self, parameters, context):
        self._in_time = InTime(context.workload, context.classes, parameters)
        self._idle_kv_usage = parameters.idle_kv_usage
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
        if self.view.accounts[replica].in_flight == 0 or kv_usage(self.view, replica) < self._idle_kv_usage:
            return True
        return self._in_time.holds(
            self.view, self.demands[row].slo_class, self.requests[row].prompt_tokens, replica)
