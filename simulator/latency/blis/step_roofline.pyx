"""`step_roofline`: one roofline over the whole iteration: all arithmetic or all memory traffic, whichever is longer.

With tokens t, context s before them, P prompt and D decode tokens, X and C their context, T = P + D,

    arithmetic   prompts / (peak x mfu_prefill) + decodes / (peak x mfu_decode), each of
                 2 t weights + t (s + (t - 1) / 2) (4 heads head_dim + 5 heads) layers + 2 t hidden_size layers
    memory       (weights + KV of T and X + C tokens + T hidden_size layers) / bandwidth

on each of the tensor-parallel ranks. Communication, kernel starts and the output head are left out. A network has two
matrices, and the experts that T tokens are expected to choose are read. `roofline` is the better predictor;
`step_roofline` is for comparison with published results.

Source: inference-sim (BLIS) at f90a1e3a, sim/latency/roofline.go; its counts and peak rates: trained_counts.py.
"""
cimport cython
from libc.stdlib cimport free, malloc

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel

from simulator.latency.blis.step_roofline_costs import costs, model_flop_utilization

Share = Annotated[float, Meta(gt=0, le=1)]


class StepRooflineParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of peak FLOP/s; BLIS has defaults for H100, A100 and L40S."""

    mfu_prefill: Annotated[Share | None, Meta(description="share of peak FLOP/s, prompts; default: BLIS's")] = None
    mfu_decode: Annotated[Share | None, Meta(description="share of peak FLOP/s, decodes; default: BLIS's")] = None


cdef struct Costs:              # see step_roofline_costs.Costs
    double prefill_token_us
    double prefill_pair_us
    double decode_token_us
    double decode_pair_us
    double kv_token_us
    double activation_token_us


cdef inline double larger(double a, double b) noexcept nogil:
    return a if a > b else b


@cython.final
cdef class StepRoofline(LatencyModel):
    """The roofline of BLIS: one maximum over the whole iteration."""

    Parameters = StepRooflineParameters
    needs_deployment = prices_any_model = True

    cdef readonly object costs              # step_roofline_costs.Costs, for reading
    cdef Costs _costs                       # `costs` as a C struct
    cdef double* _weights_us                # by number of tokens
    cdef Py_ssize_t _last_weights           # last entry: weights do not grow beyond this many tokens

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("step_roofline needs [model] and [hardware]")
        self.costs = costs(deployment, *model_flop_utilization(parameters, deployment.accelerator))
        self._copy_costs()
        self.is_shareable = True

    def __dealloc__(self):
        free(self._weights_us)

    cdef int _copy_costs(self) except -1:
        values = msgspec.structs.asdict(self.costs)
        table = values.pop("weights_us")
        self._costs = values
        free(self._weights_us)
        self._weights_us = <double*>malloc(len(table) * sizeof(double))
        if self._weights_us == NULL:
            raise MemoryError()
        self._last_weights = len(table) - 1
        for i in range(self._last_weights + 1):
            self._weights_us[i] = table[i]
        return 0

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef const Costs* cost = &self._costs
        cdef Py_ssize_t tokens = shape.prefill_tokens + shape.decode_tokens
        cdef double prompts = <double>shape.prefill_tokens
        cdef double decodes = <double>shape.decode_tokens
        cdef double decode_context = <double>(shape.context_tokens - shape.num_decodes)
        cdef double context = <double>shape.prefill_context_tokens + decode_context
        cdef double pairs = 0.5 * <double>(shape.prefill_token_pairs - 2 * shape.prefill_tokens)
        cdef double memory_us = (self._weights_us[tokens if tokens < self._last_weights else self._last_weights]
                                 + cost.kv_token_us * (context + prompts + decodes)
                                 + cost.activation_token_us * (prompts + decodes))
        if shape.decode_tokens != shape.num_decodes:    # speculative decoding: several queries a sequence
            decode_context *= decodes / shape.num_decodes
        return 1e3 * larger(
            (cost.prefill_token_us * prompts + cost.prefill_pair_us * pairs)
            + (cost.decode_token_us * decodes + cost.decode_pair_us * decode_context), memory_us)
