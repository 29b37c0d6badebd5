"""Placement of experts on ranks.

A placement is an array (layers, slots): the expert in each physical slot. Slots are numbered rank by rank, equally many
each, as vLLM numbers its physical experts.
"""
import numpy as np

from simulator.domain.deployment import Deployment


def initial(placement: str, num_experts: int, num_redundant: int, ranks: int, num_layers: int) -> np.ndarray:
    """Return the placement before any load is known.

    linear: experts in order, after them copies of the first ones (vLLM, vllm/distributed/eplb/eplb_state.py,
    build_initial_global_physical_to_logical_map). round_robin: rank r has experts r, r + ranks, ...
    """
    if placement == "round_robin":
        slots = np.arange(num_experts).reshape(-1, ranks).T.ravel()
    else:
        slots = np.append(np.arange(num_experts), np.arange(num_redundant) % num_experts)
    return np.tile(slots, (num_layers, 1))


def num_nodes(deployment: Deployment) -> int:
    """Return the nodes over which a replica is spread; 1 where none is named."""
    if deployment.node is None:
        return 1
    return -(-deployment.parallelism.num_accelerators // deployment.node.num_accelerators)


def num_copies(slots: np.ndarray, num_experts: int) -> np.ndarray:
    """Return how many slots hold each expert, (layers, experts)."""
    return np.stack([np.bincount(row, minlength=num_experts) for row in slots])


def of_slots(slots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return each slot's share of the experts' values: copies share a value evenly."""
    each = values / num_copies(slots, values.shape[1])
    return np.take_along_axis(each, slots, axis=1)


def num_moved(before: np.ndarray, after: np.ndarray, ranks: int) -> np.ndarray:
    """Return how many experts, of all layers, each rank gets that it did not hold."""
    moved = np.zeros(ranks, dtype=int)
    for old, new in zip(before.reshape(len(before), ranks, -1), after.reshape(len(after), ranks, -1), strict=True):
        for rank in range(ranks):
            moved[rank] += len(set(new[rank].tolist()) - set(old[rank].tolist()))
    return moved
