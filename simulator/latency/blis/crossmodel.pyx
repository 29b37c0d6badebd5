"""`crossmodel`: four coefficients for all models, by their layers and KV width.

    beta[0] x layers                                         starting the kernels of a layer
    + beta[1] x decode tokens x layers x KV heads x head_dim / tensor_parallel x 1e-6
    + beta[2] x (prompt + decode tokens)                     models with experts: routing them
    + beta[3]                                                tensor parallelism: waiting for one another          us

Prompt tokens of a dense model cost nothing, nor does context: the fit gave neither a price.
Source: inference-sim (BLIS) v0.7.1, sim/latency/crossmodel.go.
"""
cimport cython
from typing import Annotated

from msgspec import Meta

from simulator.domain.batch cimport BatchShape
from simulator.latency.batch_view cimport BatchView
from simulator.latency.blis.learned cimport LearnedModel

from simulator.latency.blis.coefficients import Fit, LearnedParameters, Microseconds
from simulator.latency.blis.trained_counts import COUNTED

SETS = {
    "blis": Fit(
        beta=(116.110, 1226.868, 19.943, 9445.157), alpha=(13732.0, 0.0, 860.6),
        source="inference-sim/inference-sim, training/ledger.md, iteration 3 (commit 126b98d5); vLLM on H100",
        accelerators=("h100-sxm-80gb",), models=("llama-2-7b", "llama-2-70b", "codellama-34b", "mixtral-8x7b"),
        remark="BLIS reports TTFT 17 to 56 % too short even there"),
}


class CrossmodelParameters(LearnedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients: the published fit, or your own."""

    beta: Annotated[Annotated[tuple[Microseconds, ...], Meta(min_length=4, max_length=4)] | None, Meta(description=(
        "us per layer, us per decode token and million KV elements, us per token of a model with experts, us of "
        "tensor parallelism"))] = None


@cython.final
cdef class Crossmodel(LearnedModel):
    """Four coefficients for all models; see `CrossmodelParameters`."""

    Parameters = CrossmodelParameters
    context_note = ("crossmodel: prompts had tokens in the KV cache, which cost nothing here, as published: "
                    "attention of new tokens to them is left out")
    needs_deployment = True

    cdef double _layers, _decode, _kv_width, _expert_token, _barrier        # us; _kv_width: million elements

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("crossmodel needs [model] and [hardware]")
        deployment.model.refuse_unpriced("crossmodel", COUNTED)
        LearnedModel.__init__(self, SETS, parameters, deployment, "blis")
        model, tensor = deployment.model, deployment.parallelism.tensor_parallel
        beta = self.choice.fit.beta
        self._layers = beta[0] * model.num_layers
        self._decode = beta[1]
        self._kv_width = model.kv_elements_per_token / 2 / tensor * 1e-6
        self._expert_token = beta[2] if model.moe else 0.0
        self._barrier = beta[3] if tensor > 1 else 0.0

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double decodes = <double>shape.decode_tokens
        self.note_context(shape)
        return 1e3 * (self._layers + self._decode * decodes * self._kv_width
                      + self._expert_token * (<double>shape.prefill_tokens + decodes) + self._barrier)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each term, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef double decodes = <double>batch.shape.decode_tokens
        return {"layers": 1e-6 * self._layers, "decode": 1e-6 * self._decode * decodes * self._kv_width,
                "experts": 1e-6 * self._expert_token * (batch.shape.prefill_tokens + decodes),
                "barrier": 1e-6 * self._barrier}
