"""Pools: their tables are merged over the tables of the experiment."""
import math
from copy import deepcopy
from typing import Any

from simulator.config.choices import forget
from simulator.config.experiment import Pool

TABLES = ("model", "hardware", "topology", "engine", "latency", "kv_tiers")


def overlay(data: dict[str, Any], folders: tuple[str, ...]) -> None:
    """Fill in the tables of each pool of an experiment that is still plain data.

    Parameters
    ----------
    data : the experiment as plain data.
    folders : searched for a user's module.
    """
    _split(data)
    pools = data.get("pools")
    if not isinstance(pools, list) or not all(isinstance(pool, dict) for pool in pools):
        return              # refused when it is read
    for i, pool in enumerate(pools):
        below = deepcopy({name: data[name] for name in TABLES if name in data})
        forget(Pool, below, pool, folders)
        pools[i] = _laid_over(below, pool)


def prefill_replicas(replicas: int, ratio: float, upstream_compat: bool = False) -> int:
    """Return the number of prefill replicas: replicas x ratio, rounded down.

    upstream_compat : round up, as vidur-alibabacloud routes prompts to all replicas with an index below the product.
        It still counts parameters and memory for the number rounded down.
    """
    if upstream_compat:
        return math.ceil(replicas * ratio)
    return math.floor(replicas * ratio + 1e-9)          # 0.29 x 100 is 28.999999999999996


def _split(data: dict[str, Any]) -> None:
    """Make a prefill and a decode pool from `topology.pd_node_ratio`, if both get replicas.

    Otherwise the table is unchanged: the key is refused when the experiment is checked.
    """
    topology = data.get("topology")
    if "pools" in data or not isinstance(topology, dict):
        return
    replicas, ratio = topology.get("replicas", 1), topology.get("pd_node_ratio")
    if not (isinstance(replicas, int) and isinstance(ratio, float) and 0 < ratio < 1):
        return
    moves = data.get("kv_transfer")
    prefill = prefill_replicas(replicas, ratio, isinstance(moves, dict) and moves.get("upstream_compat") is True)
    if 0 < prefill < replicas:
        del topology["pd_node_ratio"]
        data["pools"] = [{"name": role, "role": role, "replicas": count}
                         for role, count in (("prefill", prefill), ("decode", replicas - prefill))]


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _laid_over(below.get(key), value) for key, value in above.items()}
