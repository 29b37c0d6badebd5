"""Scorers that know the load of replicas alone, not the request: a few lines each.

Sources: BLIS (inference-sim, sim/routing_scorers.go) and llm-d (llm-d-inference-scheduler,
pkg/plugins/scorer), which use the same names.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.scoring.base cimport LowestBest, Scorer
from simulator.signals.load cimport effective_load, kv_usage


class QueueDepthParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score (most - queue) / (most - least), 1 if all are equal.

    Source: BLIS's queue-depth, llm-d's queue-scorer.
    """

    load: Annotated[Literal["waiting", "effective"], Meta(description=(
        "waiting: requests in the queue; effective: waiting + running + in flight, as in BLIS 0.7.1"))] = "waiting"


@cython.final
cdef class QueueDepth(LowestBest):
    """Short queues are better."""

    Parameters = QueueDepthParameters

    cdef bint _is_effective

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return parameters.load == "effective"

    def __init__(self, parameters, context):
        self._is_effective = parameters.load == "effective"
        self.view.wants_counts = True

    cdef double level(self, int32_t replica) noexcept nogil:
        return effective_load(self.view, replica) if self._is_effective else self.view.states[replica].waiting


class RunningRequestsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score (most - running) / (most - least), 1 if all are equal.

    Source: BLIS's running-requests, llm-d's running-requests-size-scorer.
    """


@cython.final
cdef class RunningRequests(LowestBest):
    """Small batches are better."""

    Parameters = RunningRequestsParameters

    def __init__(self, parameters, context):
        self.view.wants_counts = True

    cdef double level(self, int32_t replica) noexcept nogil:
        return self.view.states[replica].running


class VllmDpScorerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score (most - s) / (most - least) of s = 4 waiting + running.

    1 if all are equal.
    Source: BLIS's vllm-dp. For vLLM's choice itself, with its ties and its later rule, see the router `vllm_dp`.
    """


@cython.final
cdef class VllmDpScorer(LowestBest):
    """The load by which vLLM 0.10 chooses among data-parallel engines."""

    Parameters = VllmDpScorerParameters

    def __init__(self, parameters, context):
        self.view.wants_counts = True

    cdef double level(self, int32_t replica) noexcept nogil:
        return 4.0 * self.view.states[replica].waiting + self.view.states[replica].running


class KvUtilisationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 - share of KV blocks in use.

    Source: BLIS's kv-utilization, llm-d's kv-cache-utilization-scorer.
    """


@cython.final
cdef class KvUtilisation(Scorer):
    """Free KV memory is better."""

    Parameters = KvUtilisationParameters

    def __init__(self, parameters, context):
        self.view.wants_blocks = True

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        self.values[replica] = 1.0 - kv_usage(self.view, replica)
        return 0


class LoadBalanceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 / (1 + load), load = waiting + running + in flight.

    Source: BLIS's load-balance.
    """


@cython.final
cdef class LoadBalance(Scorer):
    """Idle replicas are much better, among busy ones it hardly matters."""

    Parameters = LoadBalanceParameters

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return True

    def __init__(self, parameters, context):
        self.view.wants_counts = True

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        self.values[replica] = 1.0 / (1.0 + effective_load(self.view, replica))
        return 0


class LoadAwareParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 0.5 (1 - min(waiting, threshold) / threshold): 0.5 if nothing waits.

    Source: BLIS's load-aware, llm-d's load-aware-scorer.
    """

    threshold_requests: Annotated[int, Meta(ge=1, le=2**20, description="waiting requests that make the score 0")] = 128


@cython.final
cdef class LoadAware(Scorer):
    """Short queues are better, on a scale that does not depend on the other replicas."""

    Parameters = LoadAwareParameters

    cdef double _threshold

    def __init__(self, parameters, context):
        self._threshold = parameters.threshold_requests
        self.view.wants_counts = True

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        cdef double waiting = self.view.states[replica].waiting
        self.values[replica] = 0.5 * (1.0 - min(waiting, self._threshold) / self._threshold)
        return 0


class TokenLoadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 - min(tokens, threshold) / threshold of the prompt tokens in flight.

    Source: llm-d's token-load-scorer and its threshold.
    """

    threshold_tokens: Annotated[int, Meta(ge=1, le=2**40, description=(
        "prompt tokens in flight that make the score 0"))] = 4_194_304


@cython.final
cdef class TokenLoad(Scorer):
    """Few prompt tokens in flight are better."""

    Parameters = TokenLoadParameters

    cdef double _threshold

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return True

    def __init__(self, parameters, context):
        self._threshold = parameters.threshold_tokens

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        cdef double tokens = <double>self.view.accounts[replica].in_flight_tokens
        self.values[replica] = 1.0 - min(tokens, self._threshold) / self._threshold
        return 0


class ActiveRequestsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 for an idle replica, less for others the more is in flight.

    1 up to idle_threshold requests in flight, else (most - in flight) / most x max_busy_score.
    Source: llm-d's active-request-scorer; BLIS's active-requests is the same with the defaults.
    """

    idle_threshold: Annotated[int, Meta(ge=0, le=2**20, description="requests in flight of an idle replica")] = 0
    max_busy_score: Annotated[float, Meta(ge=0, le=1, description="score of a replica that is not idle, at most")] = 1.0


@cython.final
cdef class ActiveRequests(LowestBest):
    """Few requests in flight are better, by the gateway's own account."""

    Parameters = ActiveRequestsParameters

    cdef double _idle, _max_busy

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return True

    def __init__(self, parameters, context):
        self._idle, self._max_busy = parameters.idle_threshold, parameters.max_busy_score

    cdef double level(self, int32_t replica) noexcept nogil:
        return self.view.accounts[replica].in_flight

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double most, least, level
        cdef int32_t i
        self.find_extremes(&most, &least)
        for i in range(self.num_replicas):
            level = self.lows.get(i)
            self.values[i] = 1.0 if level <= self._idle else (most - level) / most * self._max_busy
        return 1
