"""From the section [workload] of an experiment to the requests."""
from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload.base import Workload


def load(section, seed: int) -> Workload:
    """Read or draw the requests of an experiment.

    Parameters
    ----------
    section : simulator.config.experiment.Workload, or anything with its `type` and `parameters`.
    seed : of the experiment; traces have no use for it.

    Raises
    ------
    InputErrors
        A file that cannot be read, with every fault by line; parameters that lead to no valid workload.
    """
    source = registry.load("workload", section.type)(section.parameters)
    return source.build(RandomStreams(seed))
