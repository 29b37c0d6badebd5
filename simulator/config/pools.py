"""Pools: their tables are laid over those of the experiment."""
from copy import deepcopy
from typing import Any

from simulator.config.choices import forget
from simulator.config.experiment import Pool

TABLES = ("model", "hardware", "topology", "engine", "latency", "kv_tiers")


def overlay(data: dict[str, Any], folders: tuple[str, ...]) -> None:
    """Fill in the tables of each pool of an experiment that nobody has read yet.

    Parameters
    ----------
    data : the experiment as plain data.
    folders : in which a user's module may lie.
    """
    pools = data.get("pools")
    if not isinstance(pools, list) or not all(isinstance(pool, dict) for pool in pools):
        return              # refused when it is read
    for i, pool in enumerate(pools):
        below = deepcopy({name: data[name] for name in TABLES if name in data})
        forget(Pool, below, pool, folders)
        pools[i] = _laid_over(below, pool)


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _laid_over(below.get(key), value) for key, value in above.items()}
