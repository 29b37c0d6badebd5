"""The keys of the roofline, and what they choose: laws of single operators, or shares of peak."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors, KeyFault
from simulator.latency.roofline.laws import SHARES, Generation, ReduceLaw, generation_of, reduces_of

Share = Annotated[float, Meta(gt=0, le=1)]
Microseconds = Annotated[float, Meta(ge=0)]
# Each of these says how operators of all sizes are priced: with shares.
OF_SHARES = ("mfu_prefill", "mfu_decode", "mfu_attention", "bandwidth_efficiency", "kernel_latency_us",
             "attention_latency_us")
OF_LINKS = ("collective_latency_us", "link_efficiency")


class RooflineParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What operators reach: by laws of their size, or by shares of peak."""

    efficiency: Annotated[Literal["laws", "shares"] | None, Meta(description=(
        "laws: of single operators by size, from hardware/efficiency/; shares: one of peak for all sizes; default: "
        "laws, or shares where one of the next six keys is given"))] = None
    mfu_prefill: Annotated[Share | None, Meta(description=(
        "of peak FLOP/s, matrix products over prompt tokens; default, of shares: measured on the accelerator"))] = None
    mfu_decode: Annotated[Share | None, Meta(description=(
        "of peak FLOP/s, matrix products over decode tokens; default, of shares: measured"))] = None
    mfu_attention: Annotated[Share | None, Meta(description=(
        "of peak 16-bit FLOP/s, attention; default, of shares: measured"))] = None
    bandwidth_efficiency: Annotated[Share | None, Meta(description=(
        "of memory bandwidth; default, of shares: measured"))] = None
    kernel_latency_us: Annotated[Microseconds | None, Meta(description=(
        "of each kernel, beyond its traffic; default, of shares: 3.0"))] = None
    attention_latency_us: Annotated[Microseconds | None, Meta(description=(
        "of each attention kernel; default, of shares: measured"))] = None
    collective_latency_us: Annotated[Microseconds | None, Meta(description=(
        "of each collective, beyond its traffic, where there is no [latency.collective]; default: 5.0, all-reduces by "
        "law"))] = None
    link_efficiency: Annotated[Share | None, Meta(description=(
        "of link bandwidth, collectives; with [latency.collective] the sampler's alone; default: 0.6, all-reduces by "
        "law"))] = None


def efficiency_by(parameters: RooflineParameters, accelerator: AcceleratorSpec) -> tuple[str, Generation | None]:
    """Return the generation whose laws hold, its name before it; or "shares", None.

    Raises
    ------
    InputErrors
        Laws are asked for, and shares given.
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
