"""Default node type where [topology] names none and a replica is larger than one link domain."""
import os
from pathlib import Path

import msgspec

from simulator import registry
from simulator.config.experiment import Pool, Topology
from simulator.domain.facts import load_accelerator, load_model, reach_of
from simulator.errors import InputErrors


def with_node(pool: Pool) -> tuple[Topology, str | None]:
    """Return the topology, with the default node type if one is needed.

    The second value is the reason why a missing node type is needed; None: it is present or not needed.

    pool : of an experiment, or the experiment itself.
    """
    topology = pool.topology
    most = topology.accelerators
    if topology.node or most == 1 or pool.hardware is None:
        return topology, None
    try:
        accelerator = load_accelerator(pool.hardware.name)
        reach = reach_of(accelerator)
        ranks = most if most > reach and _share_experts(pool) else most // topology.data_parallel
    except (InputErrors, OSError):      # reported later by the code that reads the facts
        return topology, None
    if ranks > reach and accelerator.node:
        return msgspec.structs.replace(topology, node=accelerator.node), None
    if ranks <= reach or not _prices_unknown_links(pool):
        return topology, None
    return topology, (
        f"missing; a replica has {ranks} accelerators, and {accelerator.name}, without a known node type, is "
        f"assumed to be in servers of {reach}: expected a name in hardware/nodes/ or a file of your own, with "
        "the links between nodes")


def _prices_unknown_links(pool: Pool) -> bool:
    """Return whether the backend needs link bandwidths that no [latency.collective] provides."""
    return pool.latency.collective is None and registry.load("latency", pool.latency.backend).takes_collective


def _share_experts(pool: Pool) -> bool:
    """Return whether data-parallel ranks exchange tokens."""
    if pool.topology.data_parallel == 1:
        return True
    if pool.model is None:
        return False
    if not pool.model.config:
        return load_model(pool.model.name).moe is not None
    path = Path(pool.model.config)      # on the hub, the keys of all mixtures of experts contain the word
    return b"experts" in (path / "config.json" if os.path.isdir(path) else path).read_bytes()
