"""`blackbox`: a constant, a price for a prompt token, a price for a decode token, fitted to one deployment.

    beta[0] + beta[1] x prompt tokens + beta[2] x decode tokens        us

Tokens found in the prefix cache are not computed and cost nothing; context costs nothing either.
Source: inference-sim (BLIS) up to v0.7.10, sim/latency, BlackboxLatencyModel.
"""
cimport cython
from typing import Annotated

from msgspec import Meta

from simulator.domain.batch cimport BatchShape
from simulator.latency.batch_view cimport BatchView
from simulator.latency.blis.learned cimport LearnedModel

from simulator.latency.blis.blackbox_sets import SETS
from simulator.latency.blis.coefficients import LearnedParameters, Microseconds


class BlackboxParameters(LearnedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients: a published fit, or your own."""

    coefficients: Annotated[str | None, Meta(description=(
        "published set, model/accelerator/tpN; default: the set of the deployment, unless beta is given"))] = None
    beta: Annotated[Annotated[tuple[Microseconds, ...], Meta(min_length=3, max_length=3)] | None, Meta(description=(
        "us per iteration, us per prompt token, us per decode token"))] = None


@cython.final
cdef class Blackbox(LearnedModel):
    """Three prices; see `BlackboxParameters`."""

    Parameters = BlackboxParameters
    context_note = ("blackbox: prompts had tokens in the KV cache, which cost nothing here, as published: "
                    "attention of new tokens to them is left out")

    cdef double _iteration, _prefill, _decode           # us

    def __init__(self, parameters, deployment=None):
        LearnedModel.__init__(self, SETS, parameters, deployment, published_for(deployment))
        self._iteration, self._prefill, self._decode = self.choice.fit.beta

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        self.note_context(shape)
        return 1e3 * (self._iteration + self._prefill * <double>shape.prefill_tokens
                      + self._decode * <double>shape.decode_tokens)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each term, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        return {"iteration": 1e-6 * self._iteration, "prefill": 1e-6 * self._prefill * batch.shape.prefill_tokens,
                "decode": 1e-6 * self._decode * batch.shape.decode_tokens}


def published_for(deployment) -> str | None:
    """Return the set fitted on this deployment, with weights as stored, or None."""
    if deployment is None:
        return None
    if deployment.weight_dtype is not None and deployment.weight_dtype != deployment.model.dtype:
        return None
    return next((name for name, fit in SETS.items() if not fit.warnings(name, deployment)), None)
