"""[study] of kind "calibrate": what was measured, what is held out, and which keys are fitted."""
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from simulator.config.experiment import Section

AUTO, STEPS, REQUESTS = "auto", "steps", "requests"


class MeasuredRow(Section, kw_only=True):
    """A set of measurements, [[study.measured]]."""

    path: Annotated[str, Meta(extra={"path": True}, description=(
        "observed.csv, or the folder of it; steps.csv beside it has the iterations"))]
    experiment: Annotated[str | None, Meta(extra={"path": True}, description=(
        "the experiment that describes its server; default: that of the study file"))] = None
    held_out: Annotated[bool, Meta(description="it is predicted, and nothing is fitted to it")] = False


class FitKey(Section, kw_only=True):
    """A key that is fitted, [study.fit]."""

    min: Annotated[float, Meta(description="the least that it may be")]
    max: Annotated[float, Meta(description="the most")]
    prior: Annotated[float | None, Meta(description="what it is taken to be where the data say little")] = None
    prior_sd: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description=(
        "how sure that is: a standard deviation"))] = None


class CalibrateTable(Section, kw_only=True):
    """Fit an experiment to measurements, [study]."""

    kind: Annotated[Literal["calibrate"], Meta(description="what is asked")]
    measured: Annotated[tuple[Annotated[str | MeasuredRow, Meta(extra={"path": True})], ...], Meta(
        min_length=1, description="paths, or tables")]
    held_out: Annotated[tuple[Annotated[str, Meta(extra={"path": True})], ...], Meta(description=(
        "paths of `measured` that nothing is fitted to"))] = ()
    fraction: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Meta(description=(
        "instead: how much of each is held out, whole blocks of 10 s"))] = None
    level: Annotated[Literal["auto", "steps", "requests"], Meta(description=(
        "what is fitted to: iterations, requests; auto: iterations where all that is fitted to has them"))] = AUTO
    client_rtt_ms: Annotated[float, Meta(ge=0, le=1e6, description=(
        "between client and server and back; simulated TTFT and E2EL are so much longer"))] = 0.0
    evaluations: Annotated[int, Meta(ge=10, le=10**6, description="simulations of a fit to requests, at most")] = 300
    fit: Annotated[dict[str, Any], Meta(extra={"under": FitKey}, description=(
        "dotted key of [latency] -> {min, max, prior, prior_sd}"))] = field(default_factory=dict)
