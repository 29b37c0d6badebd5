"""Links of a deployment as the bus-bandwidth model counts them: rates that are reached, GB/s."""
from simulator.collective.busbw.facts import GPU_GB_PER_S, NIC_GB_PER_S, SCALEOUT_SHARE, SCALEUP_SHARE
from simulator.collective.busbw.rates import BINARY_GB, DECIMAL_GB, BusbwParameters, Links
from simulator.collective.groups import ACCELERATORS_PER_NODE, node_size
from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import reached_pcie_bytes_per_s
from simulator.errors import InputErrors, KeyFault

# Accelerators of hardware/ that SimAI knows, and network cards by rate.
_GPU_TYPES = {
    "a100-sxm-40gb": "A100", "a100-sxm-80gb": "A100", "a800-sxm-80gb": "A800", "h100-sxm-80gb": "H100",
    "h20-96gb": "H20", "h800-sxm-80gb": "H800"}
_NIC_TYPES = {25e9: "cx6", 50e9: "cx7"}
_UPSTREAM_NVLINK, _UPSTREAM_NIC = GPU_GB_PER_S["A100"], NIC_GB_PER_S["cx7"]


def links_of(parameters: BusbwParameters, deployment: Deployment | None = None) -> Links:
    """Return the links: as the parameters say, else the hardware, else SimAI."""
    size = parameters.gpus_per_node or node_size(deployment)
    return Links(_nvlink(parameters, deployment), _nic(parameters, deployment),
                 _num_nics(parameters, deployment, size), size)


def _nvlink(parameters: BusbwParameters, deployment: Deployment | None) -> float:
    if parameters.nvlink_gb_per_s is not None:
        return parameters.nvlink_gb_per_s
    accelerator = deployment.accelerator if deployment else None
    gpu_type = parameters.gpu_type or (accelerator and _GPU_TYPES.get(accelerator.name))
    if gpu_type:
        return GPU_GB_PER_S[gpu_type]
    if accelerator is None:
        return _UPSTREAM_NVLINK
    node = deployment.node
    if accelerator.scaleup_bytes_per_s == 0.0 and (node is None or node.scaleup_domain_size == 1):
        ranks = min(deployment.parallelism.num_accelerators, node_size(deployment))
        return _reached(reached_pcie_bytes_per_s(accelerator, ranks), 1.0, parameters, "nvlink_gb_per_s",
                        accelerator.name)
    rate = node.scaleup_bytes_per_s if node else accelerator.scaleup_bytes_per_s
    return _reached(rate, SCALEUP_SHARE, parameters, "nvlink_gb_per_s", accelerator.name)


def _nic(parameters: BusbwParameters, deployment: Deployment | None) -> float:
    if parameters.nic_gb_per_s is not None:
        return parameters.nic_gb_per_s
    if parameters.nic_type:
        return NIC_GB_PER_S[parameters.nic_type]
    if deployment is None:
        return _UPSTREAM_NIC
    node = deployment.node
    rate = node.nic_bytes_per_s if node else deployment.accelerator.scaleout_bytes_per_s
    if rate in _NIC_TYPES:
        return NIC_GB_PER_S[_NIC_TYPES[rate]]
    if rate == 0.0 and deployment.parallelism.num_accelerators <= node_size(deployment):
        return _UPSTREAM_NIC        # no group leaves the node
    name = node.name if node else deployment.accelerator.name
    return _reached(rate, SCALEOUT_SHARE, parameters, "nic_gb_per_s", name)


def _num_nics(parameters: BusbwParameters, deployment: Deployment | None, size: int) -> float:
    if parameters.nics_per_node is not None:
        return float(parameters.nics_per_node)
    node = deployment.node if deployment else None
    if node is None or node.num_nics == 0:
        return float(size if deployment else ACCELERATORS_PER_NODE)     # a card an accelerator
    return node.num_nics * size / node.num_accelerators                # a scale-up domain may span nodes


def _reached(rate: float, share: float, parameters: BusbwParameters, key: str, name: str) -> float:
    if rate <= 0.0:
        raise InputErrors([KeyFault(f"latency.collective.{key}: missing, and {name} has no rate of such a link")])
    giga = BINARY_GB if parameters.convention == "simai" else DECIMAL_GB
    return rate * share / giga
