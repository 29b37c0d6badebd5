"""Groups of accelerators of a replica that communicate, and their layout over nodes."""
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.parallelism import Parallelism

GROUPS = ("tensor", "expert", "data", "pipeline")                                   # order of CollectiveGroup
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")   # order of CollectiveKind
ACCELERATORS_PER_NODE = 8       # where no node type is given: that of every HGX and DGX board


class Group(NamedTuple):
    """`size` ranks: first, first + stride, ..."""

    size: int
    stride: int

    def per_node(self, node_size: int) -> int:
        """Return the number of ranks of the group in one node of `node_size` accelerators."""
        if self.size * self.stride <= node_size:
            return self.size
        return min(max(node_size // self.stride, 1), self.size)


def groups_of(ways: Parallelism) -> dict[str, Group]:
    """Return the groups of a replica by name, as in `GROUPS`.

    Ranks are numbered within a stage first, tensor parallelism fastest. Experts regroup the ranks of a stage: ranks
    that share an expert are adjacent. Ranks that divide prompts belong to the group "data".
    """
    tensor, data, stage = ways.tensor_parallel, ways.token_ranks, ways.expert_ranks
    return {
        "tensor": Group(tensor, 1),
        "expert": Group(ways.expert_parallel, max(stage // ways.expert_parallel, 1)),
        "data": Group(data, tensor),
        "pipeline": Group(ways.pipeline_parallel, stage),
    }


def node_size(deployment: Deployment | None) -> int:
    """Return the accelerators of a scale-up fabric, or without one of a server."""
    node = deployment.node if deployment else None
    return node.joined if node else ACCELERATORS_PER_NODE
