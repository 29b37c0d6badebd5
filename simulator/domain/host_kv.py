"""Size of a KV block in host memory, and the links that copy it."""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.kv_groups import GroupPlan
from simulator.domain.kv_layout import kv_layout


class HostKv(msgspec.Struct, frozen=True, kw_only=True):
    """Of one replica; rates are per direction."""

    block_bytes: float          # as the host keeps a block of all accelerators
    rank_block_bytes: float     # of it, the share that each accelerator copies, all at once
    link_bytes_per_s: float     # of an accelerator to its host; 0: not known
    num_layers: int


def host_kv(deployment: Deployment, block_size: int, groups: GroupPlan | None = None) -> HostKv:
    """Return the size of a deployment's KV blocks on its hosts.

    A block has a page for a layer of each group: one group owns the block, and uses the pages of its own layers.

    groups : of layers with block tables of their own; None: all layers share one.
    """
    ranks, num_layers = deployment.parallelism.tensor_parallel, deployment.model.num_layers
    if groups is None:
        rank_bytes = kv_layout(deployment).bytes_per_token * block_size
        ranks = 1 if deployment.model.attention.kv_is_whole else ranks
    else:
        rank_bytes = groups.block_bytes(range(num_layers))
    return HostKv(block_bytes=rank_bytes * ranks, rank_block_bytes=rank_bytes,
                  link_bytes_per_s=deployment.accelerator.pcie_bytes_per_s, num_layers=num_layers)


def host_kv_of(token_bytes: float, tensor_parallel: int, block_size: int, link_bytes_per_s: float) -> HostKv:
    """Return the size of KV blocks on the hosts, given the bytes of a token."""
    return HostKv(block_bytes=token_bytes * block_size, rank_block_bytes=token_bytes * block_size / tensor_parallel,
                  link_bytes_per_s=link_bytes_per_s, num_layers=1)
