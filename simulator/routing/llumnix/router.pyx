"""`llumnix`: metrics, filters and a selector for each infer type, over statuses and the in-flight account."""
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.domain.replica_state cimport DECODE, NEUTRAL, PREFILL
from simulator.routing.base cimport Router
from simulator.routing.llumnix.account cimport LegCounts, LocalAccount
from simulator.routing.llumnix.candidates cimport Candidates, note_hits
from simulator.routing.llumnix.dispatcher cimport Dispatcher
from simulator.routing.llumnix.filters cimport reserve
from simulator.routing.llumnix.lite cimport LiteFeed
from simulator.routing.llumnix.metrics cimport PREDICTED_TPOT, PREDICTED_TTFT, is_less
from simulator.routing.llumnix.predictor cimport OnlinePredictor
from simulator.routing.llumnix.selectors cimport BY_METRICS, SLO_DECODE_ADAPTIVE, SLO_PREFILL_ADAPTIVE, Selector
from simulator.routing.llumnix.ranking cimport Ranking
from simulator.routing.llumnix.status cimport StatusFeed

import math
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from simulator.routing.llumnix.composition import (
    MAX_SECONDS, FailoverDomainName, InferTypeSpec, MetricName, compose, settled)
from simulator.routing.llumnix.headroom import HeadroomSpecs, headroom_of
from simulator.routing.llumnix.predictor import read_tables

Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Fraction = Annotated[float, Meta(gt=0, le=100)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e9)]


class LlumnixParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys and defaults are upstream's flags, with units in their names.

    Source: llumnix-project/llumnix at 8a693b4.
    """

    # Keys that act where replicas do only one phase of a request.
    FOR_ONE_PHASE: ClassVar[tuple[str, ...]] = (
        "dispatch_prefill_load_metric", "dispatch_prefill_load_threshold", "dispatch_decode_load_metric",
        "dispatch_decode_load_threshold", "enable_predictor_enhanced_scheduling", "num_predictor_warmup_samples",
        "num_profiling_steps", "max_num_batched_tokens", "ttft_slo_ms", "ttft_slo_dispatch_threshold", "tpot_slo_ms",
        "tpot_slo_dispatch_threshold", "enable_adaptive_pd")

    scheduling_policy: Annotated[Literal["load-balance", "slo", "flood"], Meta(description=(
        "policy of infer types that `infer_types` leaves out"))] = "load-balance"
    mode: Annotated[Literal["full", "lite"], Meta(description=(
        "full: statuses of the replicas; lite: the gateway's own counts"))] = "full"
    infer_types: Annotated[list[InferTypeSpec], Meta(max_length=3, description="own compositions of infer types")] = []
    headroom: HeadroomSpecs = []
    dispatch_top_k: Annotated[int, Meta(ge=1, le=2**31 - 1, description="load-balance: draw one of the k best")] = 1
    dispatch_neutral_load_metric: Annotated[MetricName | None, Meta(description=(
        "load-balance: metric of load; default: all_prefills_tokens_num, lite: num_tokens"))] = None
    dispatch_neutral_load_threshold: Annotated[float, Meta(description=(
        "load-balance: replicas above it only in a fallback"))] = 8192.0
    dispatch_prefill_load_metric: Annotated[MetricName | None, Meta(description=(
        "load-balance: metric of load; default: all_prefills_tokens_num, lite: num_tokens"))] = None
    dispatch_prefill_load_threshold: Annotated[float, Meta(description=(
        "load-balance: replicas above it only in a fallback"))] = 2048.0
    dispatch_decode_load_metric: Annotated[MetricName | None, Meta(description=(
        "load-balance: metric of load; default: kv_cache_usage_ratio_projected, lite: num_tokens"))] = None
    dispatch_decode_load_threshold: Annotated[float, Meta(description=(
        "load-balance: replicas above it only in a fallback"))] = 1.0
    failover_domain: Annotated[FailoverDomainName, Meta(description="unit of failure")] = "instance-unit"
    data_parallel_size: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "replicas of a unit that work in step; above 1 units fail as a whole"))] = 1
    instance_staleness_s: Annotated[int, Meta(ge=0, le=int(MAX_SECONDS), description=(
        "a status more whole seconds old means a failure"))] = 60
    status_steps: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "iterations from one status to the next; 0: it changes within them too"))] = 1
    status_push_interval_s: Annotated[Seconds, Meta(description=(
        "interval of pushes of statuses from replica to store"))] = 0.04
    status_poll_interval_s: Annotated[Seconds, Meta(description=(
        "interval of polls of statuses by the scheduler; 0: every decision sees the present"))] = 0.05
    enable_instance_status_local_account: Annotated[bool | None, Meta(description=(
        "count requests in flight until a status shows them; default: true, lite: false"))] = None
    request_local_account_staleness_s: Annotated[int, Meta(ge=0, le=int(MAX_SECONDS), description=(
        "drop requests in flight that no status shows after this many whole seconds"))] = 10
    enable_cache_aware_scheduling: Annotated[bool, Meta(description="load-balance: look up prefix hits")] = False
    cache_aware_min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "shorter prompts are not looked up"))] = 1024
    kvs_chunk_size: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "tokens of a chunk; hits are counted in whole chunks"))] = 256
    dispatch_prefill_cache_locality_metric: Annotated[MetricName, Meta(description=(
        "cache-aware: metric compared first"))] = "cache_aware_all_prefills_tokens_num"
    enable_predictor_enhanced_scheduling: Annotated[bool, Meta(description=(
        "subtract the predicted progress of prefill replicas since their status"))] = False
    num_predictor_warmup_samples: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "iterations before the first fit"))] = 20
    num_profiling_steps: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "first iterations of a replica from which the predictor learns"))] = 50
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=2**30, description=(
        "chunk size that the online predictor assumes"))] = 65536
    ttft_slo_ms: Annotated[Milliseconds, Meta(description="slo: target of the time to first token")] = 6000.0
    ttft_slo_dispatch_threshold: Annotated[Fraction, Meta(description="slo: usable part of ttft_slo_ms")] = 0.85
    ttft_profiling_data_path: Annotated[str, Meta(description="JSON of prefill durations", extra={"path": True})] = ""
    tpot_slo_ms: Annotated[Milliseconds, Meta(description="slo: target of the time per output token")] = 50.0
    tpot_slo_dispatch_threshold: Annotated[Fraction, Meta(description="slo: usable part of tpot_slo_ms")] = 0.85
    tpot_profiling_data_path: Annotated[str, Meta(description="JSON of decode durations", extra={"path": True})] = ""
    enable_adaptive_pd: Annotated[bool, Meta(description="slo: any replica may prefill or decode")] = False
    requests_report_duration_s: Annotated[Seconds, Meta(description=(
        "lite: interval of reports of text lengths; 0: prompts alone count"))] = 0.0
    upstream_compat: Annotated[bool, Meta(description="repeat the faults of the original")] = False

    def __post_init__(self):
        for name, value in settled(self).items():
            msgspec.structs.force_setattr(self, name, value)


@cython.final
cdef class Llumnix(Router):
    """Llumnix's scheduler; see `LlumnixParameters` and composition.py.

    A replica reports as described in status.py. Hits are those of the replica's own KV cache, in whole chunks; upstream
    queries an index of a KV store that nodes share.
    """

    Parameters = LlumnixParameters

    turns_away = counts_promised = True

    cdef readonly Dispatcher dispatcher
    cdef readonly Candidates candidates
    cdef StatusFeed _status             # full mode
    cdef readonly LegCounts leg_counts  # prefill legs at replicas that do either leg; None: each does one
    cdef LiteFeed _lite                 # lite mode
    cdef LocalAccount _account          # None: nothing is counted
    cdef Ranking _ranking               # None: each decision judges all candidates
    cdef bint _is_judged                # they are as of the last status
    cdef int64_t _min_tokens            # of prompts that are looked up; 2**62: none is
    cdef int64_t _chunk_size
    cdef int32_t _block_size
    cdef bint _cold_misses_none
    cdef bint _is_adaptive
    cdef int32_t _row                   # the last decision: request, and the role in which it was to be sent
    cdef int8_t _role
    cdef object _given                  # its constructor's arguments

    @classmethod
    def weighs_promised(cls, parameters, scorers):
        """See Router."""
        return parameters.mode == "lite" or parameters.enable_instance_status_local_account

    def __init__(self, parameters, context):
        specs = compose(parameters)
        ttft, tpot = read_tables(parameters)
        predictor, metrics = None, {metric for spec in specs.values() for metric in spec.needed()}
        headroom = headroom_of("cluster.routing", parameters, metrics, context)
        self.reads_state = self.has_scores = True
        self.candidates = Candidates(self.num_replicas, ttft, tpot)
        if parameters.enable_instance_status_local_account:
            self._account = LocalAccount(
                self.num_replicas, len(context.workload.requests), self.candidates,
                is_cache_aware=parameters.enable_cache_aware_scheduling,
                staleness_s=parameters.request_local_account_staleness_s, leaks=parameters.upstream_compat)
        if parameters.enable_predictor_enhanced_scheduling:
            predictor = OnlinePredictor(parameters.num_predictor_warmup_samples,
                                        math.inf if parameters.upstream_compat else 1e8)
        if parameters.mode == "full":
            self._status = StatusFeed(self.view, self.candidates, parameters, context.workload.requests,
                                      self._account, predictor, context.prefill_legs)
            self._status.headroom = headroom
            self.leg_counts = self._status.leg_counts
        else:
            self._lite = LiteFeed(self.view, self.candidates, parameters, context.workload.requests)
        self.dispatcher = Dispatcher(self.candidates, specs, self.draws, parameters, self._account, predictor)
        self._min_tokens = max(1, parameters.cache_aware_min_tokens) if (
            parameters.enable_cache_aware_scheduling) else 2**62
        self._chunk_size, self._block_size = parameters.kvs_chunk_size, context.block_size
        self._cold_misses_none = parameters.upstream_compat
        self._is_adaptive = parameters.enable_adaptive_pd
        if parameters.enable_cache_aware_scheduling:
            self.view.wants_caches = True
        self._row, self._given = -1, (parameters, context)
        self._start_ranking(parameters)

    def _start_ranking(self, parameters):
        ranking = Ranking(self.dispatcher, self._first_role(), parameters.data_parallel_size)
        if (parameters.mode == "full" and parameters.status_poll_interval_s > 0 and ranking.can_tell
                and not (parameters.enable_cache_aware_scheduling or parameters.enable_adaptive_pd)):
            self._ranking = ranking

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        if self._ranking is not None:
            self._role = self._first_role()
            self._update_ranking(now_ns)
            self._row = row
            return self._ranking.pick(self.draws)
        self._role = self.prepare(row, now_ns)
        self._row = row
        return self.dispatcher.pick(self._role)

    cdef int _update_ranking(self, int64_t now_ns) except -1 nogil:
        """Judge the candidates that changed since the last decision."""
        cdef bint have_come = self._status.receive(now_ns)
        cdef int32_t i
        self.candidates.now_ns = now_ns
        for i in range(self.view.num_changed):
            if self._status.note_door(self.view.changed[i]):
                self._ranking.judge(self.view.changed[i])
        self.view.forget_changes()
        if have_come or not self._is_judged:
            self._ranking.judge_all()
            self._is_judged = True
        if SIM_DEBUG:
            self._status.refresh(now_ns)
            self._ranking.check()
        return 0

    cdef int8_t _first_role(self) noexcept nogil:
        """Return the role in which a request is to be sent first."""
        if self.dispatcher.num_typed[<int32_t>NEUTRAL] > 0:
            return NEUTRAL
        return PREFILL if self.dispatcher.num_typed[<int32_t>PREFILL] > 0 else DECODE

    # The replica that is to decode request `row`, when its prefill is done or along with it.
    cdef int32_t route_decode(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.prepare(row, now_ns)
        self._row, self._role = row, DECODE
        return self.dispatcher.pick(DECODE)

    cdef int8_t prepare(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Measure everything for a request; return the role in which it is to be sent first."""
        cdef int64_t prompt_tokens = self.requests[row].prompt_tokens
        self._is_judged = False
        if self._status is not None:
            self._status.refresh(now_ns)
        else:
            self._lite.refresh(now_ns)
        if self._is_adaptive:
            reserve(self.candidates)
        self.candidates.begin(now_ns)
        if prompt_tokens >= self._min_tokens:
            self._look_up(row, prompt_tokens, now_ns)
        self.dispatcher.measure(prompt_tokens)
        return self._first_role()

    cdef int _look_up(self, int32_t row, int64_t prompt_tokens, int64_t now_ns) except -1 nogil:
        cdef const int32_t* blocks = self.view.cached_everywhere(row, now_ns)
        cdef int32_t i
        cdef int64_t cached
        for i in range(self.num_replicas):
            cached = <int64_t>self._block_size * blocks[i]
            note_hits(&self.candidates.items[i], prompt_tokens, cached // self._chunk_size * self._chunk_size,
                      self._cold_misses_none)
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int8_t role = self._role if row == self._row else self.candidates.items[replica].infer_type
        if self.leg_counts is not None:         # decode legs are sent by LlumnixDecodes
            role = PREFILL
            self.leg_counts.sent(row, replica)
        return self.note_role(row, replica, role, now_ns)

    # Account for a request that was sent in a role.
    cdef int note_role(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
        cdef bint is_known = row == self._row
        cdef int64_t prompt_tokens = self.requests[row].prompt_tokens
        if self._lite is not None:
            return self._lite.sent(row, replica, prompt_tokens)
        if self._account is not None:
            self._account.add(row, replica, role, prompt_tokens,
                              self.candidates.items[replica].hit_tokens if is_known else 0, now_ns)
            self._judge(replica)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self.leg_counts is not None:
            self.leg_counts.left(row, replica)
        return self.note_gone(row, replica)

    # It has left that replica, in any role.
    cdef int note_gone(self, int32_t row, int32_t replica) except -1 nogil:
        if self._lite is not None:
            self._lite.left(row, replica)
        if self._account is not None:
            self._account.remove(row, replica)
            self._judge(replica)
        return 0

    cdef int opened(self, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._account is not None and self.view.accounts[replica].up_since_ns == now_ns:
            self._account.restart(replica)      # it restarted, and was not only reopened
            self._judge(replica)
        return 0

    cdef inline void _judge(self, int32_t replica) noexcept nogil:
        if self._ranking is not None:
            self._ranking.judge(replica)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        return self.score_in_role(self.prepare(row, now_ns), scores)

    # Score by the selector's first metric; candidates that filters reject get -inf.
    cdef int score_in_role(self, int8_t role, double* scores) except -1 nogil:
        cdef const Selector* selector = &self.dispatcher.pipelines[role].selector
        cdef int32_t k, i, metric = -1
        if selector.kind == BY_METRICS:
            metric = selector.metrics[0]
        elif selector.kind == SLO_PREFILL_ADAPTIVE or selector.kind == SLO_DECODE_ADAPTIVE:
            metric = PREDICTED_TTFT if selector.kind == SLO_PREFILL_ADAPTIVE else PREDICTED_TPOT
        self.dispatcher.sift(role)
        for i in range(self.num_replicas):
            scores[i] = -INFINITY
        for k in range(self.dispatcher.num_kept):
            i = self.dispatcher.kept[k]
            scores[i] = 0 if metric < 0 else self.candidates.metric(metric, i)
            if metric >= 0 and selector.kind != SLO_DECODE_ADAPTIVE and is_less(metric, 0, 1):
                scores[i] = -scores[i]      # less is better
        return 0

    def for_decodes(self):
        """See Router: one scheduler makes both choices."""
        if not self._is_adaptive:
            raise ValueError("replicas do one leg each unless enable_adaptive_pd = true")
        return LlumnixDecodes(*self._given, self)

    @property
    def keeps_ranking(self):
        """Only candidates that changed are judged for a request."""
        return self._ranking is not None

    def choose_decode_replica(self, row, now_ns):
        """Return the replica that is to decode a request; -1: none (for Python and tests)."""
        return self.route_decode(row, now_ns)


@cython.final
cdef class LlumnixDecodes(Router):
    """Second interface of adaptive P/D's scheduler: the choice of decode replicas.

    scheduler : Llumnix, which sends the prompts.
    """

    Parameters = LlumnixParameters

    cdef readonly Llumnix scheduler

    def __init__(self, parameters, context, Llumnix scheduler):
        self.scheduler, self.reads_state, self.has_scores = scheduler, True, True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        return self.scheduler.route_decode(row, now_ns)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self.scheduler.note_role(row, replica, DECODE, now_ns)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self.scheduler.note_gone(row, replica)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        self.scheduler.prepare(row, now_ns)
        return self.scheduler.score_in_role(DECODE, scores)
