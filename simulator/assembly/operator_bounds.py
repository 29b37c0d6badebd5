"""The least time of each operator of an iteration: FLOPs over the peak, bytes over the bandwidth.

The roofline prices the batch with full shares of peak and without latencies: once on an accelerator with an unlimited
memory bandwidth, once on one with unlimited arithmetic. Links between accelerators take their time in both; a bound has
them only where the price of its operator is the roofline's, too.
"""
from typing import NamedTuple

from msgspec.structs import asdict, replace

from simulator import registry
from simulator.assembly.context import with_free_exchanges
from simulator.assembly.latency import operator_errors
from simulator.assembly.site import Site
from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import FASTEST
from simulator.errors import InputErrors
from simulator.latency.roofline.costs import between_bytes_per_token
from simulator.latency.roofline.parameters import efficiency_by
from simulator.latency.uncertainty.spread import OperatorError

ROOFLINE = "roofline"
FLOPS, BYTES, LINKS = "FLOPs", "bytes", "links"
IDEAL = {"efficiency": "shares", "mfu_prefill": 1.0, "mfu_decode": 1.0, "mfu_attention": 1.0, "link_efficiency": 1.0,
         "bandwidth_efficiency": 1.0, "kernel_latency_us": 0.0, "attention_latency_us": 0.0,
         "collective_latency_us": 0.0}
LINK_RATES = ("scaleup_bytes_per_s", "pcie_bytes_per_s", "scaleout_bytes_per_s")
LEAST_S = 1e-12                 # below it an operator does nothing


class Bound(NamedTuple):
    """The least time of an operator.

    seconds : the longer of the two. by : FLOPS, BYTES or LINKS, whichever binds. flops_s : FLOPs over the peak.
    bytes_s : bytes over the bandwidth.
    """

    seconds: float
    by: str
    flops_s: float
    bytes_s: float


def bounds_of(site: Site, batch: tuple) -> dict[str, Bound]:
    """Return the bound of each operator; empty: the pool names no model or card.

    batch : arguments of `predict` of a latency model.
    """
    deployment = site.deployment
    if deployment is None or deployment.accelerator is None:
        return {}
    accelerator = deployment.accelerator
    rates = asdict(accelerator.dense_flops_per_s)
    no_memory = replace(accelerator, memory_bandwidth_bytes_per_s=FASTEST)
    no_arithmetic = replace(accelerator, dense_flops_per_s=replace(
        accelerator.dense_flops_per_s, **{name: FASTEST for name, rate in rates.items() if rate}))
    try:
        flops, moved = (_ideal(site, replace(deployment, accelerator=each), batch)
                        for each in (no_memory, no_arithmetic))
        alone = _ideal(site, replace(deployment, node=None, accelerator=replace(
            no_arithmetic, **dict.fromkeys(LINK_RATES, FASTEST))), batch)
    except (InputErrors, ValueError):
        return {}
    if site.pool.latency.backend != ROOFLINE:   # the roofline counts the gather of logits as the sampler's
        flops["sampler"], moved["sampler"] = 0.0, alone["sampler"]
    if site.pool.latency.collective is not None:        # its links are not those of the accelerator's file
        flops["collectives"] = moved["collectives"] = 0.0
    if _counts_by_laws(site, deployment):
        share = between_bytes_per_token(deployment, counts_experts=False) / between_bytes_per_token(deployment)
        moved |= {"activations": moved["activations"] * share,
                  "experts": moved["experts"] + moved["activations"] * (1 - share)}
    return {name: _bound(flops[name], moved[name], name) for name in flops}


def sources_of(site: Site) -> dict[str, str]:
    """Return the source of the price of each operator, as far as the backend knows it."""
    if not site.backend.knows_errors:
        return {}
    try:
        errors = operator_errors(site)
    except InputErrors:                         # prices that the experiment gives itself
        return {}
    return {name: _source(name, each) for name, each in errors.items() if each.tables or each.beyond is not None}


def _counts_by_laws(site: Site, deployment: Deployment) -> bool:
    """Return whether the time of experts contains the traffic of their activations, as laws have it."""
    latency = site.pool.latency
    return (deployment.model.moe is not None and latency.backend == ROOFLINE
            and efficiency_by(latency.parameters, deployment.accelerator)[1] is not None)


def _source(name: str, error: OperatorError) -> str:
    where = error.beyond if error.is_beyond else error.inside
    how = where.how if where is not None else "not measured"
    if not error.tables:
        return how
    tables = "its own table" if error.tables == (name,) else f"tables {', '.join(error.tables)}"
    return f"{tables}; error: {how}"


def _ideal(site: Site, deployment: Deployment, batch: tuple) -> dict[str, float]:
    backend = registry.load("latency", ROOFLINE)
    model = backend(backend.Parameters(**IDEAL), deployment)
    return dict(with_free_exchanges(site, model).breakdown(*batch))


def _bound(flops_s: float, bytes_s: float, name: str) -> Bound:
    by = LINKS if name == "collectives" else FLOPS if flops_s >= bytes_s else BYTES
    return Bound(max(flops_s, bytes_s), by, flops_s, bytes_s)
