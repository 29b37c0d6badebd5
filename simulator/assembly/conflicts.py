"""Conflicts that are known once the models of an experiment have been read."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.config import conflicts
from simulator.config.experiment import Experiment
from simulator.config.reader import dotted
from simulator.errors import InputErrors, KeyFault


def refuse_conflicts(experiment: Experiment, known: Sequence[Mapping[str, Callable[[], Any]]]) -> None:
    """Refuse features that do not go together.

    known : facts of each pool that computes tokens, as `conflicts.Place` takes them.

    Raises
    ------
    InputErrors
        One fault for each conflict of the table.
    """
    pools = tuple(pool for pool in experiment.pools if pool.role != "encode")
    sections = {name: getattr(experiment, name) for name in experiment.__struct_fields__} | {"pools": pools}
    faults = [f"{f'pools.{pools[path[1]].name}.{dotted(path[2:])}' if path[0] == 'pools' else dotted(path)}: {message}"
              for path, message in conflicts.faults(sections, known=known)]
    if faults:
        raise InputErrors(map(KeyFault, faults))
