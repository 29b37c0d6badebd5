"""DeepSeek's expert-parallel load balancer: copy hot experts, and pack all copies evenly.

Replicate: each redundant slot goes to the expert with the largest load per copy. Pack: by descending load into the
least loaded rank with room; if each has room for one slot, the order stays. Hierarchical where groups of
experts, and ranks, divide by nodes: groups are packed into nodes, experts copied within each, slots packed into its
ranks; else all ranks are one node. Source of the rules: deepseek-ai/EPLB, eplb.py, as vLLM has them in
vllm/distributed/eplb/policy/default.py and eplb_state.py. Ties: the lowest number; copies follow all originals.
"""
import heapq
from collections import Counter

import numpy as np


def rebalance(loads: np.ndarray, num_slots: int, ranks: int, num_groups: int = 1, num_nodes: int = 1) -> np.ndarray:
    """Return the placement of experts with these loads; see placement.py.

    Parameters
    ----------
    loads : (layers, experts).
    num_slots : of all ranks, a multiple of `ranks`.
    num_groups : of experts that follow one another, equally many each.
    num_nodes : over which the ranks are spread, in order.
    """
    if not is_hierarchical(ranks, num_groups, num_nodes):
        num_groups = num_nodes = 1
    return np.array([_layer(row.tolist(), num_slots, ranks, num_groups, num_nodes) for row in loads])


def is_hierarchical(ranks: int, num_groups: int, num_nodes: int) -> bool:
    """Say whether groups of experts are kept on nodes."""
    return ranks % num_nodes == 0 and num_groups % num_nodes == 0


def _layer(loads: list[float], num_slots: int, ranks: int, num_groups: int, num_nodes: int) -> list[int]:
    size = len(loads) // num_groups
    groups = [sum(loads[first:first + size]) for first in range(0, len(loads), size)]
    slots = []
    for node in pack(groups, num_nodes):
        experts = [group * size + i for group in node for i in range(size)]
        held = [experts[i] for i in replicate([loads[expert] for expert in experts], num_slots // num_nodes)]
        copies = Counter(held)
        for rank in pack([loads[expert] / copies[expert] for expert in held], ranks // num_nodes):
            slots += [held[i] for i in rank]
    return slots


def replicate(loads: list[float], num_slots: int) -> list[int]:
    """Return the expert in each slot.

    All experts first, then copies in the order in which they are made.
    """
    counts, slots = [1] * len(loads), list(range(len(loads)))
    heap = [(-load, i) for i, load in enumerate(loads)]
    heapq.heapify(heap)
    for _ in range(num_slots - len(loads)):
        i = heap[0][1]
        counts[i] += 1
        slots.append(i)
        heapq.heapreplace(heap, (-loads[i] / counts[i], i))
    return slots


def pack(loads: list[float], num_bins: int) -> list[list[int]]:
    """Return the items of each bin, equally many."""
    room = len(loads) // num_bins
    if room == 1:
        return [[item] for item in range(num_bins)]
    bins = [[] for _ in range(num_bins)]
    heap = [(0.0, i) for i in range(num_bins)]
    for item in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        load, i = heapq.heappop(heap)
        bins[i].append(item)
        if len(bins[i]) < room:
            heapq.heappush(heap, (load + loads[item], i))
    return bins
