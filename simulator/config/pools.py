"""Pools: their tables are merged over the tables of the experiment."""
from copy import deepcopy
from typing import Any

from simulator.config.choices import forget
from simulator.config.experiment import OF_POOLS, Pool


def overlay(data: dict[str, Any], folders: tuple[str, ...]) -> None:
    """Fill in the tables of each pool of an experiment that is still plain data.

    Parameters
    ----------
    data : the experiment as plain data.
    folders : searched for a user's module.
    """
    pools = data.get("pools")
    if not isinstance(pools, list) or not all(isinstance(pool, dict) for pool in pools):
        return              # refused when it is read
    for i, pool in enumerate(pools):
        below = deepcopy({name: data[name] for name in OF_POOLS if name in data})
        forget(Pool, below, pool, folders)
        pools[i] = _laid_over(below, pool)


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _laid_over(below.get(key), value) for key, value in above.items()}
