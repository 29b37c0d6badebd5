"""GPUs of a network that a replica runs on, and their groups."""
import numpy as np

from simulator.collective.flow.fabrics import Fabric, build_fabric
from simulator.collective.flow.topology import Topology, read_topology
from simulator.collective.groups import groups_of
from simulator.domain.efficiency import LINK_EFFICIENCY, reached_pcie_bytes_per_s
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors, KeyFault

_GBPS_OF_BYTES_PER_S = 8e-9


def members_of(parallelism: Parallelism, first_gpu: int = 0) -> dict[str, list[np.ndarray]]:
    """Return the GPUs of each group by kind; groups of a kind run at the same time."""
    ranks = first_gpu + np.arange(parallelism.num_accelerators)
    return {name: list(np.swapaxes(ranks.reshape(-1, group.size, group.stride), 1, 2).reshape(-1, group.size))
            for name, group in groups_of(parallelism).items()}


def network_of(parameters, deployment) -> Topology:
    """Return the network that the parameters name, or one made of the node's links."""
    if parameters.topology is not None and parameters.fabric is not None:
        raise InputErrors([KeyFault("latency.collective: topology and fabric exclude each other")])
    if parameters.topology is not None:
        return read_topology(parameters.topology)
    num_gpus = parameters.first_gpu + deployment.parallelism.num_accelerators
    if parameters.fabric is not None:
        return build_fabric(parameters.fabric, num_gpus)
    return build_fabric(_node_fabric(deployment, num_gpus), num_gpus)


def _node_fabric(deployment, num_gpus):
    """Return rails of servers like the deployment's node, at the share of their rates that collectives reach."""
    node, accelerator = deployment.node, deployment.accelerator
    inside = LINK_EFFICIENCY * (node.scaleup_bytes_per_s if node else accelerator.scaleup_bytes_per_s)
    if accelerator.scaleup_bytes_per_s == 0.0 and (node is None or node.scaleup_domain_size == 1):
        ranks = deployment.parallelism.num_accelerators
        inside = reached_pcie_bytes_per_s(accelerator, min(ranks, node.joined) if node else ranks)
    outside = node.scaleout_bytes_per_s if node else accelerator.scaleout_bytes_per_s
    per_server = node.joined if node else num_gpus
    if not inside or (num_gpus > per_server and not outside):
        place = "between servers" if inside else "inside a server"
        raise InputErrors([KeyFault(f"latency.collective: no link {place} is known for "
                                    f"{(node or accelerator).name}; give a topology or a fabric")])
    rates = {"nvlink_gbps": inside, "nic_gbps": LINK_EFFICIENCY * outside or inside}
    design = "rail_optimized"
    if node:
        design = node.network
        rates |= {"spine_gbps": LINK_EFFICIENCY * node.spine_bytes_per_s} if node.spine_bytes_per_s else {}
    return Fabric(design=design, gpus_per_server=per_server, nics_per_switch=(node and node.nics_per_switch) or None,
                  num_spine_switches=(node and node.num_spine_switches) or None,
                  **{name: rate * _GBPS_OF_BYTES_PER_S for name, rate in rates.items()})
