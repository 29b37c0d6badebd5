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
    token_bytes: float          # of a token on an accelerator, in all groups of layers as if each kept all tokens


def host_kv(deployment: Deployment, block_size: int, groups: GroupPlan | None = None) -> HostKv:
    """Return the size of a deployment's KV blocks on its hosts.

    A block has a page for a layer of each group: one group owns the block, and uses the pages of its own layers.

    groups : of layers with block tables of their own; None: all layers share one.
    """
    ranks, num_layers = deployment.parallelism.tensor_parallel, deployment.model.num_layers
    if groups is None:
        token_bytes = kv_layout(deployment).bytes_per_token
        rank_bytes = token_bytes * block_size
        ranks = 1 if deployment.model.attention.kv_is_whole else ranks
    else:
        rank_bytes = groups.block_bytes(range(num_layers))
        token_bytes = sum(len(layers) * groups.page_bytes // group.block_size
                          for group, layers in zip(groups.layers.groups, groups.members, strict=True))
    return HostKv(block_bytes=rank_bytes * ranks, rank_block_bytes=rank_bytes,
                  link_bytes_per_s=deployment.accelerator.pcie_bytes_per_s, num_layers=num_layers,
                  token_bytes=token_bytes)


def host_kv_of(token_bytes: float, tensor_parallel: int, block_size: int, link_bytes_per_s: float,
               num_groups: int = 1) -> HostKv:
    """Return the size of KV blocks on the hosts; bytes of a token: in all groups."""
    block_bytes = token_bytes / num_groups * block_size
    return HostKv(block_bytes=block_bytes, rank_block_bytes=block_bytes / tensor_parallel,
                  link_bytes_per_s=link_bytes_per_s, num_layers=1, token_bytes=token_bytes / tensor_parallel)
