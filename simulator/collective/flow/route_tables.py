"""Routing tables of a network: all shortest paths, as switches with equal-cost multi-path know them.

GPUs that hang on the same switches share their tables: they are one edge. NVSwitches serve their own server alone, and
are preferred within it (aliyun/SimAI, network_frontend/ns3/common.h). A direction of a link has a number: link i from
its source is 2i, back 2i + 1.
"""
import numpy as np

from simulator.collective.flow.topology import Topology


def directed(topology: Topology):
    """Return sources, targets, bytes per ns and latencies of directed links."""
    links = topology.links
    ends = np.stack([links["source"], links["target"]], axis=1)
    return (ends.ravel(), ends[:, ::-1].ravel(), np.repeat(links["bytes_per_ns"], 2), np.repeat(links["latency_ns"], 2))


def ports(topology: Topology, first: int, end: int):
    """Return offsets and numbers of links from each GPU to nodes `first` .. `end` - 1."""
    source, target, _, _ = directed(topology)
    chosen = np.flatnonzero((source < topology.num_gpus) & (target >= first) & (target < end))
    chosen = chosen[np.lexsort((target[chosen], source[chosen]))]
    counts = np.bincount(source[chosen], minlength=topology.num_gpus)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), chosen.astype(np.int32)


def edges(topology: Topology, offsets, numbers):
    """Return the edge of each GPU, and as rows of booleans the switches of each edge."""
    target = directed(topology)[1]
    switches = [tuple(target[numbers[offsets[gpu]:offsets[gpu + 1]]].tolist()) for gpu in range(topology.num_gpus)]
    index = {ends: i for i, ends in enumerate(dict.fromkeys(switches))}
    member = np.zeros((len(index), topology.num_switches), bool)
    for ends, i in index.items():
        member[i, np.array(ends, int) - topology.first_switch] = True
    return np.array([index[ends] for ends in switches], np.int32), member


def next_hops(topology: Topology, member):
    """Return how to reach each edge from each switch.

    Returns
    -------
    distance : int32 array (edges, switches); -1: cannot be reached.
    offsets : int32 array (edges * switches + 1): where the next hops of a switch towards an edge begin.
    numbers : int32 array: links to switches that are one hop nearer, by switch.
    """
    source, target, _, _ = directed(topology)
    inner = np.flatnonzero((source >= topology.first_switch) & (target >= topology.first_switch))
    inner = inner[np.lexsort((target[inner], source[inner]))]
    tail, head = source[inner] - topology.first_switch, target[inner] - topology.first_switch
    num_edges, num_switches = member.shape
    distance = np.where(member, 0, -1).astype(np.int32)
    counts, chosen = np.zeros((num_edges, num_switches), np.int64), []
    for edge in range(num_edges):
        hops, row = 0, distance[edge]
        while True:                                 # one ring of switches further out at a time
            found = tail[(row[head] == hops) & (row[tail] < 0)]
            if not len(found):
                break
            hops += 1
            row[found] = hops
        nearer = (row[head] >= 0) & (row[tail] == row[head] + 1)
        counts[edge] = np.bincount(tail[nearer], minlength=num_switches)
        chosen.append(inner[nearer])
    offsets = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int32)
    return distance, offsets, np.concatenate([*chosen, np.empty(0, int)]).astype(np.int32)
