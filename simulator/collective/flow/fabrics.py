"""Networks by their design: Spectrum-X, AlibabaHPN, DCN+, rail-optimised.

Two layers of switches above the servers' NVSwitches, ASW below PSW. Single top of rack: every NIC has one port; dual:
two ports to two ASWs. Rails: the i-th GPUs of the servers of a segment share their i-th ASW; without rails a segment's
GPUs share one ASW, or two. Dual plane: the ASWs of second ports reach the second half of the PSWs only.
Sizes and defaults of the templates: aliyun/SimAI, astra-sim-alibabacloud/inputs/topo/gen_Topo_Template.py.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.collective.flow.topology import LINK, Topology
from simulator.domain.hardware_spec import NetworkDesign
from simulator.errors import InputErrors, KeyFault

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Gbps = Annotated[float, Meta(gt=0, le=1e9)]
Nanoseconds = Annotated[float, Meta(ge=0, le=1e9)]
MAX_LINKS = 10**7               # 240 MB; the largest clusters of today have a million
_GBPS = 0.125                   # bytes per ns


class Template(msgspec.Struct, frozen=True):
    """Fixed properties and defaults of a design."""

    has_rails: bool
    num_ports: int              # of a NIC
    num_planes: int
    nic_gbps: float
    nics_per_switch: int        # ports of an ASW towards GPUs
    num_spine_switches: int


TEMPLATES = {
    "spectrum_x": Template(True, 1, 1, 400.0, 64, 64),
    "rail_optimized": Template(True, 1, 1, 400.0, 64, 64),
    "alibaba_hpn_single_plane": Template(True, 2, 1, 200.0, 128, 120),
    "alibaba_hpn_dual_plane": Template(True, 2, 2, 200.0, 128, 120),
    "dcn_single_tor": Template(False, 1, 1, 400.0, 64, 8),
    "dcn_dual_tor": Template(False, 2, 1, 200.0, 128, 8),
}


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network to generate; a key that is absent is the design's own."""

    design: Annotated[NetworkDesign, Meta(description="topology of the switches")] = "spectrum_x"
    num_gpus: Annotated[Count | None, Meta(description="default: those of the replica, in whole servers")] = None
    gpus_per_server: Annotated[Count, Meta(description="GPUs that share NVSwitches")] = 8
    nv_switches_per_server: Annotated[Count, Meta(description="NVSwitches, each linked to every GPU")] = 1
    gpu_type: Annotated[str, Meta(description="GPU type, for information")] = "H100"
    nvlink_gbps: Annotated[Gbps, Meta(description="link of a GPU to an NVSwitch, each direction")] = 2880.0
    nvlink_latency_ns: Annotated[Nanoseconds, Meta(description="latency of links inside servers")] = 25.0
    nic_gbps: Annotated[Gbps | None, Meta(description="port of a NIC; default: the design's")] = None
    spine_gbps: Annotated[Gbps, Meta(description="link of an ASW to a PSW")] = 400.0
    latency_ns: Annotated[Nanoseconds, Meta(description="latency of links outside servers")] = 500.0
    nics_per_switch: Annotated[Count | None, Meta(description="NICs of an ASW; default: the design's")] = None
    num_spine_switches: Annotated[Count | None, Meta(description="PSWs; default: the design's")] = None


def build_fabric(fabric: Fabric, num_gpus: int = 8) -> Topology:
    """Return the network of a design; `num_gpus` are needed where it does not say."""
    template = TEMPLATES[fabric.design]
    per_server = fabric.gpus_per_server
    num_gpus = fabric.num_gpus or -(-num_gpus // per_server) * per_server
    num_spines = fabric.num_spine_switches or template.num_spine_switches
    if num_gpus % per_server:
        raise InputErrors([KeyFault(f"num_gpus: expected a multiple of gpus_per_server = {per_server}, "
                                    f"found {num_gpus}")])
    if num_spines % template.num_planes:
        raise InputErrors([KeyFault(f"num_spine_switches: expected an even number for two planes, found {num_spines}")])
    num_nv = num_gpus // per_server * fabric.nv_switches_per_server
    rails = per_server if template.has_rails else 1
    segment_gpus = (fabric.nics_per_switch or template.nics_per_switch) * rails
    set_size = -(-num_gpus // segment_gpus) * rails                 # ASWs of first ports, or of second ones
    num_leaves = set_size * template.num_ports
    nic = fabric.nic_gbps or template.nic_gbps
    num_links = num_gpus * (fabric.nv_switches_per_server + template.num_ports) + num_leaves * num_spines
    if num_links > MAX_LINKS:
        raise InputErrors([KeyFault(f"latency.collective: a network of {num_gpus} GPUs with {num_links} links is too "
                                    f"large to simulate, at most {MAX_LINKS} links are possible")])

    gpu = np.arange(num_gpus)
    switch = num_gpus + num_nv                                      # id of the first ASW
    leaf = gpu // segment_gpus * rails + gpu % rails
    parts = [_links(gpu, num_gpus + gpu // per_server * fabric.nv_switches_per_server + i,
                    fabric.nvlink_gbps, fabric.nvlink_latency_ns) for i in range(fabric.nv_switches_per_server)]
    parts += [_links(gpu, switch + port * set_size + leaf, nic, fabric.latency_ns)
              for port in range(template.num_ports)]
    asw, psw = np.meshgrid(np.arange(num_leaves), np.arange(num_spines), indexing="ij")
    meets = (asw // set_size) == (psw // (num_spines // 2)) if template.num_planes == 2 else np.full(asw.shape, True)
    parts.append(_links(switch + asw[meets], switch + num_leaves + psw[meets], fabric.spine_gbps, fabric.latency_ns))
    return Topology(num_gpus, per_server, num_nv, num_leaves + num_spines, fabric.gpu_type, np.concatenate(parts))


def _links(source, target, gbps, latency_ns):
    links = np.empty(len(source), LINK)
    links["source"], links["target"], links["bytes_per_ns"], links["latency_ns"] = (
        source, target, gbps * _GBPS, latency_ns)
    return links
