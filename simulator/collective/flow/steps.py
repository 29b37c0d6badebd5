"""Collectives as messages between GPUs: ring, NVLS, direct; as SimAI decomposes them.

Ring: as many rings as the group has GPUs on a server, each going through a server's GPUs from another one, each with
its part of the bytes; of n GPUs each passes 2 (n - 1) chunks of 1 / n on for an all-reduce, n - 1 for half of it, a
chunk as soon as it has arrived. NVLS: four parts go up to the NVSwitch one after the other, and each comes down when
all GPUs have sent it. All-to-all: each GPU sends 1 / n to every other at once.
Source: aliyun/SimAI 1.6, astra-sim/system/MockNcclGroup.cc.
"""
import numpy as np

from simulator.collective.flow.plan import LANE, Plan

FIRST_PORT = 10_000             # of a pair of GPUs; each message has its own (SimAI, network_frontend/ns3/common.h)
NVLS_PARTS = 4


def ring(groups, gpus_per_server, num_steps_of, relays=False) -> Plan:
    """Return the plan of rings in all groups at once.

    Parameters
    ----------
    groups : list of int arrays
        The GPUs of each group.
    num_steps_of : callable
        Messages that each GPU sends in a ring, from the size of the group.
    relays : bool
        Between servers a message goes over NVLink to the GPU on the receiver's rail first (NCCL's PXN).
    """
    lanes, edges = [], []
    for group in groups:
        group = np.sort(np.asarray(group))
        size = len(group)
        if size < 2:
            continue
        servers = np.unique(group // gpus_per_server)
        is_even = np.all(np.bincount(np.searchsorted(servers, group // gpus_per_server)) * len(servers) == size)
        local = size // len(servers) if is_even else 1
        for channel in range(local):
            order = np.roll(group.reshape(-1, local), -channel, axis=1).ravel()
            table = _lanes(order, np.roll(order, -1), 1.0 / (size * local), num_steps_of(size))
            table["port"] += channel
            table["port_stride"] = local
            first = sum(map(len, lanes))
            number = first + np.arange(size)
            lanes.append(table)
            edges.append(np.stack([number, np.roll(number, -1), np.ones(size, int)], axis=1))
    table, edges = _joined(lanes, LANE), _joined(edges, np.int64, (0, 3))
    return Plan(*_relayed(table, edges, gpus_per_server)) if relays else Plan(table, edges)


def nvls(groups, switches) -> Plan:
    """Return the plan of all-reduces in NVSwitches, one for each group."""
    lanes, edges = [], []
    for group, number in zip(groups, switches, strict=True):
        group = np.asarray(group)
        size = len(group)
        if size < 2:
            continue
        switch = np.full(size, number)
        up = sum(map(len, lanes)) + np.arange(size)
        down = up + size
        lanes += [_lanes(*ends, 1.0 / NVLS_PARTS, NVLS_PARTS) for ends in ((group, switch), (switch, group))]
        edges.append(np.stack([np.repeat(up, size), np.tile(down, size), np.zeros(size * size, int)], axis=1))
    return Plan(_joined(lanes, LANE), _joined(edges, np.int64, (0, 3)))


def all_to_all(groups) -> Plan:
    """Return the plan in which every GPU sends every other one of its group its part."""
    lanes = []
    for group in groups:
        source, target = np.meshgrid(group, group, indexing="ij")
        differ = source != target
        lanes.append(_lanes(source[differ], target[differ], 1.0 / len(group), 1))
    return Plan(_joined(lanes, LANE))


def send_receive(groups) -> Plan:
    """Return the plan in which each GPU of a group sends the next one everything."""
    return Plan(_joined([_lanes(np.asarray(group)[:-1], np.asarray(group)[1:], 1.0, 1) for group in groups], LANE))


def all_reduce_steps(size):
    """Return the messages of each GPU in a ring all-reduce."""
    return 2 * (size - 1)


def half_steps(size):
    """Return the messages of each GPU in a ring all-gather or reduce-scatter."""
    return size - 1


def _lanes(source, target, share, num_steps):
    table = np.zeros(len(source), LANE)
    table["source"], table["target"], table["share"], table["num_steps"] = source, target, share, num_steps
    table["port"], table["port_stride"] = FIRST_PORT, 1
    return table


def _joined(parts, dtype, shape=0):
    return np.concatenate(parts) if parts else np.zeros(shape, dtype)


def _relayed(table, edges, gpus_per_server):
    """Split the lanes that change rail between servers in two, the first over NVLink."""
    source, target = table["source"].astype(np.int64), table["target"]
    relay = source // gpus_per_server * gpus_per_server + target % gpus_per_server
    is_split = (source // gpus_per_server != target // gpus_per_server) & (relay != source)
    first = np.flatnonzero(is_split)
    second = len(table) + np.arange(len(first))
    rest = table[first]
    rest["source"] = relay[first]
    table = np.concatenate([table, rest])
    table["target"][first] = relay[first]
    last_of = np.arange(len(table))                     # the lane that ends at the target
    last_of[first] = second
    edges = edges.copy()
    edges[:, 0] = last_of[edges[:, 0]]
    return table, np.concatenate([edges, np.stack([first, second, np.zeros(len(first), int)], axis=1)])
