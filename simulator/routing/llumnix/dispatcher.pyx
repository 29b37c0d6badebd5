"""Llumnix's dispatch: metrics, filters, selector, for whole requests and for prefill and decode.

Source: llumnix-project/llumnix at 8a693b4, scheduling_policy.go.
"""
cimport cython

from simulator.domain.replica_state cimport DECODE, NEUTRAL, PREFILL
from simulator.routing.llumnix.candidates cimport Candidate
from simulator.routing.llumnix.filters cimport apply_filters, fill_chain
from simulator.routing.llumnix.metrics cimport compute_metric
from simulator.routing.llumnix.selectors cimport fill_selector, select

import numpy as np

from simulator.errors import InputErrors, KeyFault
from simulator.routing.llumnix.composition import INFER_TYPES, metric_code


@cython.final
cdef class Dispatcher:
    """Chooses replicas for requests.

    candidates : state of the replicas.
    specs : infer type -> InferTypeSpec, as llumnix_composition.compose gives it.
    draws : random numbers, of selectors that choose among the k best.
    account : LocalAccount of requests in flight; None: not counted.
    predictor : OnlinePredictor of prefill iterations; None: progress since a status is not predicted.
    parameters : LlumnixParameters, coerced.
    """

    def __init__(self, Candidates candidates, specs, Draws draws, parameters, LocalAccount account=None,
                 OnlinePredictor predictor=None):
        cdef int32_t[:, ::1] lists
        self.candidates, self.draws, self.account, self.predictor = candidates, draws, account, predictor
        self._is_adaptive, self._is_compatible = parameters.enable_adaptive_pd, parameters.upstream_compat
        self._max_batched_tokens = parameters.max_num_batched_tokens
        self._arrays = np.zeros((NUM_INFER_TYPES + 1, candidates.count), np.int32)
        lists = self._arrays
        for i, name in enumerate(INFER_TYPES):
            self.members[<int32_t>i] = &lists[<int32_t>i, 0]
            if name in specs:
                fill_pipeline(&self.pipelines[<int32_t>i], specs[name], parameters.mode == "lite")
        self.kept = &lists[NUM_INFER_TYPES, 0]
        self.regroup()

    cdef void regroup(self) noexcept nogil:
        cdef int32_t i, infer_type
        for infer_type in range(NUM_INFER_TYPES):
            self.num_members[infer_type] = self.num_typed[infer_type] = 0
        for i in range(self.candidates.count):
            self.num_typed[self.candidates.items[i].infer_type] += 1
            for infer_type in range(NUM_INFER_TYPES):
                if self.candidates.items[i].infer_type == infer_type or (self._is_adaptive and infer_type != NEUTRAL):
                    self.members[infer_type][self.num_members[infer_type]] = i
                    self.num_members[infer_type] += 1

    cdef void measure(self, int64_t prompt_tokens) noexcept nogil:
        cdef int32_t infer_type, k
        cdef const Pipeline* pipeline
        if self.predictor is not None:
            self._predict()
        for infer_type in range(NUM_INFER_TYPES):
            pipeline = &self.pipelines[infer_type]
            for k in range(pipeline.num_metrics):
                compute_metric(self.candidates, pipeline.metrics[k], self.members[infer_type],
                               self.num_members[infer_type], prompt_tokens)

    cdef bint sift(self, int8_t infer_type) except -1 nogil:
        cdef int32_t k, left, attempt
        if not self.pipelines[infer_type].is_defined:
            self._refuse(infer_type)
        for attempt in range(2):
            self.num_kept = apply_filters(self.candidates, &self.pipelines[infer_type].filters,
                                          self.members[infer_type], self.num_members[infer_type], attempt, self.kept)
            left = 0
            for k in range(self.num_kept):      # closed replicas stay closed under any filters
                self.kept[left] = self.kept[k]
                left += self.candidates.items[self.kept[k]].is_schedulable != 0
            self.num_kept = left
            if left > 0:
                return attempt
        return True

    cdef int32_t pick(self, int8_t infer_type) except -2 nogil:
        cdef bint is_fallback = self.sift(infer_type)
        return select(self.candidates, &self.pipelines[infer_type].selector, self.kept, self.num_kept, is_fallback,
                      self.draws)

    cdef int choose(self, DispatchMode mode, int8_t infer_type, int32_t row, int64_t prompt_tokens,
                    Choice* choice) except -1 nogil:
        cdef int32_t i, groups = 0
        choice.neutral = choice.prefill = choice.decode = -1
        choice.has_groups = True
        if mode == WHOLE:
            choice.neutral = self.pick(NEUTRAL)
            return self._note(row, choice.neutral, NEUTRAL, prompt_tokens)
        for i in range(NUM_INFER_TYPES):
            groups += self.num_typed[i] > 0
        if (mode == PD_BATCH and groups < 2) or (
                self._is_adaptive and (self.num_typed[<int32_t>PREFILL] == 0 or self.num_typed[<int32_t>DECODE] == 0)):
            choice.has_groups = False
            return 0
        if mode == PD_BATCH or infer_type == PREFILL:
            choice.prefill = self.pick(PREFILL)
            self._note(row, choice.prefill, PREFILL, prompt_tokens)
        if mode == PD_BATCH or infer_type == DECODE:
            choice.decode = self.pick(DECODE)
            self._note(row, choice.decode, DECODE, prompt_tokens)
        if mode == PD_BATCH and choice.prefill >= 0 and choice.decode < 0 and self.account is not None:
            self.account.revert_prefill(row, choice.prefill)
        return 0

    cdef int _note(self, int32_t row, int32_t chosen, int8_t infer_type, int64_t prompt_tokens) except -1 nogil:
        if chosen >= 0 and self.account is not None:
            self.account.add(row, chosen, infer_type, prompt_tokens, self.candidates.items[chosen].hit_tokens,
                             self.candidates.now_ns)
        return 0

    cdef void _predict(self) noexcept nogil:
        """Predict the progress of prefill replicas since their status.

        Upstream cuts the result off by the wrong variable, so that it is always 0.
        """
        cdef int32_t k, i
        cdef Candidate* c
        if not self.predictor.is_fitted or self._is_compatible:
            return
        for k in range(self.num_members[<int32_t>PREFILL]):
            i = self.members[<int32_t>PREFILL][k]
            c = &self.candidates.items[i]
            c.predicted_tokens = self.predictor.computed_tokens(
                c.waiting_prefill_tokens + c.running_prefill_tokens + c.in_flight_prefill_tokens,
                c.running_prefill_tokens, self._max_batched_tokens, <double>self.candidates.age_ms(i))

    cdef int _refuse(self, int8_t infer_type) except -1 nogil:
        with gil:
            name = INFER_TYPES[infer_type]
            raise InputErrors([KeyFault(
                f"cluster.routing.scheduling_policy: this policy has no rule for {name} replicas; give one: "
                f'[[cluster.routing.infer_types]] infer_type = "{name}"')])


cdef int fill_pipeline(Pipeline* pipeline, object spec, bint is_lite) except -1:
    names = spec.needed()
    if len(names) > MAX_COMPUTED:
        raise ValueError(f"at most {MAX_COMPUTED} metrics, found {len(names)}")
    for i, name in enumerate(names):
        pipeline.metrics[<int32_t>i] = metric_code(name, is_lite)
    pipeline.num_metrics = <int32_t>len(names)
    fill_chain(&pipeline.filters, spec.filters, is_lite)
    fill_selector(&pipeline.selector, spec.selector, is_lite)
    pipeline.is_defined = True
    return 0
