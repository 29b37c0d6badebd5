"""`blackbox`: a constant, a price for a prompt token, a price for a decode token, fitted to one deployment.

    beta[0] + beta[1] x prompt tokens + beta[2] x decode tokens        us

What is found in the prefix cache is not computed and costs nothing; context costs nothing either.
Source: inference-sim (BLIS) up to v0.7.10, sim/latency, BlackboxLatencyModel.
"""
cimport cython
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView

from simulator.latency.blackbox_sets import SETS
from simulator.latency.coefficients import Alpha, Coefficient, choose, linear_host_terms


class BlackboxParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published fit, or your own."""

    coefficients: Annotated[str | None, Meta(description=(
        "published set, model/accelerator/tpN; default: that of the deployment, unless beta is given"))] = None
    beta: Annotated[Annotated[tuple[Coefficient, ...], Meta(min_length=3, max_length=3)] | None, Meta(description=(
        "us an iteration, us a prompt token, us a decode token"))] = None
    alpha: Annotated[Alpha | None, Meta(description=(
        "us a request and us a prompt token before it queues, us an output token; default: of the set, or 0"))] = None


@cython.final
cdef class Blackbox(LatencyModel):
    """Three prices; see `BlackboxParameters`."""

    Parameters = BlackboxParameters

    cdef readonly object choice             # coefficients.Choice
    cdef object _deployment
    cdef double _iteration, _prefill, _decode           # us

    def __init__(self, parameters, deployment=None):
        self.choice = choose(SETS, parameters, published_for(deployment))
        self._deployment = deployment
        self._iteration, self._prefill, self._decode = self.choice.fit.beta

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        return 1e3 * (self._iteration + self._prefill * <double>shape.prefill_tokens
                      + self._decode * <double>shape.decode_tokens)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each term; arguments as `predict`, whose result is their sum."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        return {"iteration": 1e-6 * self._iteration, "prefill": 1e-6 * self._prefill * batch.shape.prefill_tokens,
                "decode": 1e-6 * self._decode * batch.shape.decode_tokens}

    def host_terms(self) -> dict:
        """Return what the coefficients say of [latency.host]: its keys, in microseconds."""
        return linear_host_terms(self.choice.fit.alpha)

    def provenance(self) -> dict:
        """Return where the coefficients come from."""
        return self.choice.provenance()

    def warnings(self) -> list:
        """Return in what respects the deployment lies outside of what was fitted."""
        return self.choice.warnings(self._deployment)


def published_for(deployment) -> str | None:
    """Return the set fitted on this very deployment, weights as stored, or None."""
    if deployment is None:
        return None
    if deployment.weight_dtype is not None and deployment.weight_dtype != deployment.model.dtype:
        return None
    return next((name for name, fit in SETS.items() if not fit.warnings(name, deployment)), None)
