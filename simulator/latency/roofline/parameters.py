"""The keys of the roofline, and their choice of laws of single operators or shares of peak."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors, KeyFault
from simulator.latency.roofline.laws import SHARES, Generation, ReduceLaw, generation_of, reduces_of

Share = Annotated[float, Meta(gt=0, le=1)]
Microseconds = Annotated[float, Meta(ge=0)]
# Keys that imply shares of peak for operators of all sizes.
OF_SHARES = ("mfu_prefill", "mfu_decode", "mfu_attention", "bandwidth_efficiency", "kernel_latency_us",
             "attention_latency_us")
OF_LINKS = ("collective_latency_us", "link_efficiency")


class RooflineParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Efficiency of operators: by laws of their size, or by shares of peak."""

    efficiency: Annotated[Literal["laws", "shares"] | None, Meta(description=(
        "laws: by the size of each operator, from hardware/efficiency/; shares: one share of peak for all sizes; "
        "default: laws, or shares if mfu_*, bandwidth_efficiency, kernel_latency_us or attention_latency_us is given"
        ))] = None
    mfu_prefill: Annotated[Share | None, Meta(description=(
        "share of peak FLOP/s, matrix products over prompt tokens; default with shares: measured"))] = None
    mfu_decode: Annotated[Share | None, Meta(description=(
        "share of peak FLOP/s, matrix products over decode tokens; default with shares: measured"))] = None
    mfu_attention: Annotated[Share | None, Meta(description=(
        "share of peak 16-bit FLOP/s, attention; default with shares: measured"))] = None
    bandwidth_efficiency: Annotated[Share | None, Meta(description=(
        "share of memory bandwidth; default with shares: measured"))] = None
    kernel_latency_us: Annotated[Microseconds | None, Meta(description=(
        "time of each kernel beyond its traffic; default with shares: 3.0"))] = None
    attention_latency_us: Annotated[Microseconds | None, Meta(description=(
        "time of each attention kernel beyond its traffic; default with shares: measured"))] = None
    collective_latency_us: Annotated[Microseconds | None, Meta(description=(
        "without [latency.collective]: time of each collective beyond its traffic; default: 5.0, all-reduces by "
        "law"))] = None
    link_efficiency: Annotated[Share | None, Meta(description=(
        "share of link bandwidth that collectives reach; with [latency.collective] only the sampler's; default: 0.6, "
        "all-reduces by law"))] = None


def efficiency_by(parameters: RooflineParameters, accelerator: AcceleratorSpec) -> tuple[str, Generation | None]:
    """Return (name, generation) of the laws in use; or ("shares", None).

    Raises
    ------
    InputErrors
        Both laws and shares are given.
    """
    given = [key for key in OF_SHARES if getattr(parameters, key) is not None]
    if parameters.efficiency == "laws" and given:
        raise InputErrors([KeyFault(
            f'latency.{key}: efficiency = "laws", which have no such share; expected no such key, or '
            f'efficiency = "shares"') for key in given])
    if given or parameters.efficiency == "shares":
        return SHARES, None
    return generation_of(accelerator)


def reduce_law(parameters: RooflineParameters, deployment: Deployment,
               generation: Generation | None) -> ReduceLaw | None:
    """Return the law of all-reduces within a node; None: keys or shares price them."""
    if generation is None or any(getattr(parameters, key) is not None for key in OF_LINKS):
        return None
    node, ranks = deployment.node, deployment.parallelism.tensor_parallel
    if node is not None and ranks > max(node.scaleup_domain_size, node.num_accelerators):
        return None
    joins = deployment.accelerator.scaleup_bytes_per_s > 0.0 and (node is None or ranks <= node.scaleup_domain_size)
    return reduces_of(generation).get("scaleup" if joins else "pcie")
