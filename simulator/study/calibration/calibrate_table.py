"""[study] of kind "calibrate": measurements, held-out data, and the keys to fit."""
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
    held_out: Annotated[bool, Meta(description="held out of the fit, and predicted")] = False


class FitKey(Section, kw_only=True):
    """A key that is fitted, [study.fit]."""

    min: Annotated[float, Meta(description="least value of the key")]
    max: Annotated[float, Meta(description="largest value of the key")]
    prior: Annotated[float | None, Meta(description="expected value, used where the data say little")] = None
    prior_sd: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description=(
        "standard deviation of the prior"))] = None


class ResidualTable(Section, kw_only=True):
    """Measured iterations on top of the latency model, [study.residual]."""

    scope: Annotated[Literal["iteration", "forward"], Meta(description=(
        "the measured time. iteration: of the engine, as its logs have it; forward: of kernels alone, as `vllm bench "
        "forward` has it, beside which host, graphs and other parts stay as they are"))] = "iteration"
    most_ratio: Annotated[float, Meta(gt=1, le=1e3, description=(
        "bound of an iteration's time over that of the latency model, and the other way round"))] = 4.0


class CalibrateTable(Section, kw_only=True):
    """Fit an experiment to measurements, [study]."""

    kind: Annotated[Literal["calibrate"], Meta(description="kind of study")]
    measured: Annotated[tuple[Annotated[str | MeasuredRow, Meta(extra={"path": True})], ...], Meta(
        min_length=1, description="paths, or tables")]
    held_out: Annotated[tuple[Annotated[str, Meta(extra={"path": True})], ...], Meta(description=(
        "paths of `measured` that are held out of the fit"))] = ()
    fraction: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Meta(description=(
        "share of each data set that is held out, in whole blocks of 10 s; instead of held_out"))] = None
    level: Annotated[Literal["auto", "steps", "requests"], Meta(description=(
        "data of the fit: iterations (steps) or requests; auto: iterations where all its data sets have them"))] = AUTO
    residual: Annotated[ResidualTable | None, Meta(description=(
        "fit measured iterations on top of the latency model, and write steps.json for [latency] residual; absent: no"
        ))] = None
    client_rtt_ms: Annotated[float, Meta(ge=0, le=1e6, description=(
        "round trip between client and server, added to simulated TTFT and E2EL"))] = 0.0
    evaluations: Annotated[int, Meta(ge=10, le=10**6, description="simulations of a fit to requests, at most")] = 300
    fit: Annotated[dict[str, Any], Meta(extra={"under": FitKey}, description=(
        "dotted key of [latency] -> {min, max, prior, prior_sd}"))] = field(default_factory=dict)
