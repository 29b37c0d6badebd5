"""Over what the KV cache of a replica can be copied to another."""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.kv_layout import kv_layout


class KvLink(msgspec.Struct, frozen=True, kw_only=True):
    """Of the accelerators together that hold a sequence; rates are per direction."""

    bytes_per_token: float
    scaleup_bytes_per_s: float          # 0: not known
    scaleout_bytes_per_s: float
    replicas_per_domain: int            # that share a scale-up domain


def kv_link(deployment: Deployment) -> KvLink:
    """Return the links of a deployment: each rank copies its own shard, all at once.

    Without a node there is no scale-up domain to share, and the network card is the one typical of the accelerator.
    """
    ways, node, accelerator = deployment.parallelism, deployment.node, deployment.accelerator
    ranks = ways.tensor_parallel * ways.pipeline_parallel
    outer = node.scaleout_bytes_per_s if node else accelerator.scaleout_bytes_per_s
    return KvLink(
        bytes_per_token=kv_layout(deployment).bytes_per_token * ways.tensor_parallel,
        scaleup_bytes_per_s=node.scaleup_bytes_per_s * ranks if node else 0.0, scaleout_bytes_per_s=outer * ranks,
        replicas_per_domain=max(node.scaleup_domain_size // ways.num_accelerators, 1) if node else 1)
