"""The parameters of `aicb`, and the rules of pricing that follow from them and the deployment."""
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import COLLECTIVE_LATENCY_US
from simulator.domain.host import Microseconds
from simulator.errors import InputErrors, KeyFault
from simulator.latency.aicb.profile import DISPATCH_SHARE
from simulator.latency.aicb.rows import Row, Rules, decode_rows, prefill_row
from simulator.latency.aicb.tables import Layout, Table, facts_of, model_in, read_layout

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Gbps = Annotated[float, Meta(ge=1e-3, le=1e9)]

# As in vidur-alibabacloud (aliyun/SimAI at cef83f9d): "Gbps" of 2**30 bits, and 1 us for a component that a layer
# lacks.
UPSTREAM_GIGA, UPSTREAM_ABSENT_NS = 2.0 ** 30, 1000.0


class AicbParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vidur-AICB per-layer tables, and the links that carry their bytes."""

    tables: Annotated[str, Meta(extra={"path": True}, description=(
        "folder of vidur-MODEL-world_sizeW-tpT-ppP-epE-bsB-seqS-PHASE.csv; tp, pp as in [topology]"))]
    table_model: Annotated[str | None, Meta(description=(
        "MODEL in the names of tables; default: the only model there"))] = None
    world_size: Annotated[Count | None, Meta(description=(
        "W: accelerators that share the experts; default: all accelerators of a replica"))] = None
    expert_parallel: Annotated[Count | None, Meta(description="E; default: as in [topology]")] = None
    decode_world_size: Annotated[Count | None, Meta(description="W of decode tables; default: world_size")] = None
    decode_expert_parallel: Annotated[Count | None, Meta(description=(
        "E of decode tables; default: expert_parallel"))] = None
    variant: Annotated[Literal["intended", "upstream"], Meta(description=(
        "upstream: as vidur-alibabacloud computes, its unit fault of 1000 removed, and without its look-up cache, "
        "whose answers depend on the order of arrivals"))] = "intended"
    expert_exchange: Annotated[Literal["by_phase", "rdma", "nvlink", "collective"] | None, Meta(description=(
        "link of expert traffic; by_phase: RDMA for prefill, NVLink for decode; collective: [latency.collective]; "
        "default: by_phase, upstream rdma"))] = None
    rdma_bandwidth_gbps: Annotated[Gbps, Meta(description=(
        "bandwidth of one accelerator between nodes, 1e9 bit/s"))] = 800.0
    nvlink_bandwidth_gbps: Annotated[Gbps, Meta(description=(
        "bandwidth of one accelerator inside a node, 1e9 bit/s"))] = 1600.0
    collective_latency_us: Annotated[Microseconds, Meta(description=(
        "latency of each all-reduce and stage hand-over, without [latency.collective]"))] = COLLECTIVE_LATENCY_US
    pipeline: Annotated[Literal["pass", "slowest_stage"], Meta(description=(
        "prediction of a whole iteration: pass: through all stages; slowest_stage: the pace when all stages are busy; "
        "a simulation has a batch in each stage either way"))] = "pass"
    outside: Annotated[Literal["nearest", "error"], Meta(description=(
        "batches beyond the tables: use and count the nearest table, or stop with an error"))] = "nearest"

    @property
    def is_upstream(self) -> bool:
        """Whether vidur-alibabacloud is followed."""
        return self.variant == "upstream"

    def bytes_per_ns(self, link: str) -> float:
        """Return the bandwidth of a link: rdma or nvlink."""
        gbps = self.rdma_bandwidth_gbps if link == "rdma" else self.nvlink_bandwidth_gbps
        return gbps * (UPSTREAM_GIGA / 1e9 if self.is_upstream else 1.0) / 8


class Grids(msgspec.Struct, frozen=True):
    """The tables of both phases, priced."""

    prefill: Row
    decode: list[Row]
    sources: tuple[str, ...]    # sources of the numbers, as stated in the tables
    facts: dict[str, Any]       # phase -> file, version, sha256, measured


def grids(parameters: AicbParameters, deployment: Deployment, collective) -> Grids:
    """Read and price the tables of a deployment.

    Raises
    ------
    InputErrors
        Tables that are missing, corrupt, or of another number of layers.
    """
    ways = deployment.parallelism
    slices = [ways.layers_of_stage(deployment.model, stage) for stage in range(ways.pipeline_parallel)]
    model = model_in(parameters.tables, parameters.table_model)
    prefill, decode = (_tables(parameters, deployment, model, phase) for phase in ("prefill", "decode"))
    return Grids(
        prefill=prefill_row(prefill, slices, _rules(parameters, deployment, collective, "prefill")),
        decode=decode_rows(decode, slices, _rules(parameters, deployment, collective, "decode")),
        sources=tuple(sorted({table.source for table in prefill + decode} - {""})),
        facts={"prefill": facts_of(parameters.tables, prefill), "decode": facts_of(parameters.tables, decode)})


def gathers(parameters: AicbParameters, deployment: Deployment) -> np.ndarray:
    """Return the numbers of layers with gathers for experts, (stages,).

    These are the layers with experts, if ranks hold slices of all experts; 0 with a single rank, with whole experts per
    rank, or upstream, which has no such layout.
    """
    model, ways = deployment.model, deployment.parallelism
    is_sliced = _layout(parameters, deployment, "", "prefill").expert_parallel == 1
    stages = [ways.layers_of_stage(model, stage) for stage in range(ways.pipeline_parallel)]
    if ways.data_parallel == 1 or not is_sliced or parameters.is_upstream:
        return np.zeros(len(stages))
    return np.array([float(sum(model.layers[layer].moe is not None for layer in layers))
                     for layers in stages])


def _layout(parameters: AicbParameters, deployment: Deployment, model: str, phase: str) -> Layout:
    ways = deployment.parallelism
    world_size, expert_parallel = parameters.world_size, parameters.expert_parallel
    if phase == "decode":
        world_size = parameters.decode_world_size or world_size
        expert_parallel = parameters.decode_expert_parallel or expert_parallel
    return Layout(
        model=model, world_size=world_size or ways.num_accelerators, tensor_parallel=ways.tensor_parallel,
        pipeline_parallel=ways.pipeline_parallel, expert_parallel=expert_parallel or ways.expert_parallel, phase=phase)


def _tables(parameters: AicbParameters, deployment: Deployment, model: str, phase: str) -> list[Table]:
    layout, expected = _layout(parameters, deployment, model, phase), deployment.model.num_layers
    tables = read_layout(parameters.tables, layout)
    for table in tables:
        if len(table.compute_ns) != expected:
            raise InputErrors([KeyFault(
                f"latency.tables: {layout}, bs {table.batch_size}, seq {table.sequence_length}: has "
                f"{len(table.compute_ns)} layers, model {deployment.model.name} has {expected}")])
    return tables


def _rules(parameters: AicbParameters, deployment: Deployment, collective, phase: str) -> Rules:
    """Return the prices of a phase. Experts that are split by width (ep 1) end in an all-reduce, without exchange."""
    if parameters.is_upstream:
        chosen = parameters.expert_exchange or "rdma"
        return Rules(_exchange(parameters, collective, chosen, phase), lambda num_bytes: 0.0, UPSTREAM_ABSENT_NS)

    def reduce_ns(num_bytes: float) -> float:
        return collective.predict("tensor", "all_reduce", num_bytes) * 1e9

    if _layout(parameters, deployment, "", phase).expert_parallel == 1:
        return Rules(reduce_ns, reduce_ns)
    return Rules(_exchange(parameters, collective, parameters.expert_exchange or "by_phase", phase), reduce_ns)


def _exchange(parameters: AicbParameters, collective, chosen: str, phase: str):
    """Return the price of one expert exchange, dispatch and combine, by its bytes."""
    if chosen == "collective":
        shares = [each / (DISPATCH_SHARE + 1) for each in (DISPATCH_SHARE, 1)]
        return lambda num_bytes: sum(
            collective.predict("expert", "all_to_all", num_bytes * share) * 1e9 for share in shares)
    link = {"prefill": "rdma", "decode": "nvlink"}[phase] if chosen == "by_phase" else chosen
    return lambda num_bytes: num_bytes / parameters.bytes_per_ns(link)
