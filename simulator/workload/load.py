"""From the section [workload] of an experiment to the requests."""
from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload.base import Workload
from simulator.workload.lowering import workload_of
from simulator.workload.wanted import Wanted

FIRST_GUESS = 64            # requests for each slot of a closed loop that a duration bounds


def load(section, seed: int, num_requests: int = 0) -> Workload:
    """Read or draw the requests of an experiment.

    Parameters
    ----------
    section : simulator.config.experiment.Workload.
    seed : of the experiment; traces have no use for it.
    num_requests : to be drawn where only a duration bounds a closed loop, see `Wanted`; 0: a guess.

    Raises
    ------
    InputErrors
        A file that cannot be read, with every fault by line; parameters that lead to no valid workload.
    """
    source, streams = registry.load("workload", section.type)(section.parameters), RandomStreams(seed)
    wanted = Wanted(section.load.mode == "timestamps", num_requests or FIRST_GUESS * (section.load.concurrency or 1))
    columns = source.columns(streams, wanted)
    return workload_of(columns, section.load, getattr(section.parameters, "duration_s", None), streams)
