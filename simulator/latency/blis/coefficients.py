"""Learned coefficients of the latency models of BLIS: published sets, the user's own, and warnings outside a fit.

beta prices an iteration; alpha, in microseconds, prices time outside it that does not block the engine. The sets
are facts of inference-sim/inference-sim (Apache-2.0), restated digit by digit.
"""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.host import MAX_US
from simulator.errors import InputErrors, KeyFault, did_you_mean

Coefficient = Annotated[float, Meta(ge=0, le=MAX_US)]
Microseconds = Annotated[Coefficient, Meta(extra={"unit": "us"})]
Alpha = Annotated[tuple[Microseconds, ...], Meta(min_length=3, max_length=3)]


class LearnedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients: a published fit, or your own; a subclass adds `beta`."""

    coefficients: Annotated[str | None, Meta(description=(
        "published set; default: blis, unless beta is given"))] = None
    alpha: Annotated[Alpha | None, Meta(description=(
        "us per request and per prompt token before queueing, us per output token; default: the set's, or 0"))] = None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """One fit; `beta` and `alpha` in the order of their backend.

    The other fields describe the measurements: accelerators and models by their names here, tensor-parallel degrees;
    empty if irrelevant or unknown.
    """

    beta: tuple[float, ...]
    alpha: tuple[float, ...]
    source: str = ""
    accelerators: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tensor_parallel: tuple[int, ...] = ()
    remark: str = ""            # known error outside the measurements

    def warnings(self, name: str, deployment: Deployment | None) -> list[str]:
        """Return warnings if `deployment` is outside the measurements of the fit."""
        if deployment is None:
            return []
        ways = deployment.parallelism
        respects = (
            ("accelerator", deployment.accelerator.name, self.accelerators),
            ("model", deployment.model.name, self.models),
            ("tensor_parallel", ways.tensor_parallel, self.tensor_parallel),
            ("pipeline_parallel", ways.pipeline_parallel, (1,)),
            ("data_parallel", ways.data_parallel, (1,)))
        return [_warning(name, what, found, fitted, self.remark)
                for what, found, fitted in respects if fitted and found not in fitted]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The coefficients of an experiment: a published set, or its own."""

    name: str                   # of the set; "" where beta is the user's own
    fit: Fit

    def provenance(self) -> dict:
        """Return the source of the coefficients."""
        return {"coefficients": self.name or "given", "source": self.fit.source,
                "beta": list(self.fit.beta), "alpha": list(self.fit.alpha)}

    def warnings(self, deployment: Deployment | None) -> list[str]:
        """Return warnings if a published set is used outside its fit."""
        return self.fit.warnings(self.name, deployment) if self.name else []


def choose(sets: dict[str, Fit], parameters, default: str | None) -> Choice:
    """Return the coefficients that `parameters` choose.

    Parameters
    ----------
    sets : published sets, by name.
    parameters : LearnedParameters with `beta`; a key that the experiment does not give is None.
    default : name of the set if the experiment gives neither set nor beta; None: there is none.

    Raises
    ------
    InputErrors
        An unknown set; neither set nor beta.
    """
    if parameters.coefficients is not None and parameters.beta is not None:
        raise InputErrors([KeyFault("latency.coefficients: give a set or beta, not both")])
    if parameters.beta is not None:
        return Choice(name="", fit=Fit(beta=parameters.beta, alpha=parameters.alpha or (0.0, 0.0, 0.0)))
    name = parameters.coefficients or default
    if name not in sets:
        problem = "no published set fits the deployment; name one or give beta" if name is None else f'no set "{name}"'
        raise InputErrors([KeyFault(f"latency.coefficients: {problem}{did_you_mean(name or '', sets)}")])
    fit = sets[name]
    return Choice(name=name, fit=msgspec.structs.replace(fit, alpha=parameters.alpha) if parameters.alpha else fit)


def _warning(name: str, what: str, found: object, fitted: tuple, remark: str) -> str:
    listed = ", ".join(map(str, fitted))
    return f'coefficients "{name}" were fitted on {what} {listed}, not {found}{f"; {remark}" if remark else ""}'
