"""From the section [workload] of an experiment to the requests."""
from dataclasses import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.lowering import workload_of
from simulator.workload.recycling import repeated
from simulator.workload.wanted import Wanted

AGAIN = "requests of plays that come again, after which the run ends even before duration_s"
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
    load, duration_s = section.load, getattr(section.parameters, "duration_s", None)
    guess = FIRST_GUESS * (load.concurrency or load.lanes or 1)
    wanted = Wanted(load.mode == "timestamps", num_requests or guess)
    columns = source.columns(streams, wanted)
    if load.recycle:
        if duration_s is None and not columns.most:
            raise InputErrors([KeyFault("workload.load.recycle: plays come again until duration_s or max_requests, and "
                                        "the workload has neither")])
        columns = repeated(columns, columns.most or wanted.num_requests)
        if not columns.most:
            columns = replace(columns, notes=(*columns.notes, f"{AGAIN}: {len(columns)}"))
    return workload_of(columns, load, duration_s, streams)
