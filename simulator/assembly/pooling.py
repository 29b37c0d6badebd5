"""Pooling: engines that compute prompts and generate nothing."""
import numpy as np
from msgspec.structs import replace

from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload


def is_pooling(pool) -> bool:
    """Return whether the engine of a pool serves pooling."""
    return getattr(pool.engine.parameters, "task", "generate") == "pooling"


def without_outputs(workload: Workload, pools: list) -> Workload:
    """Return the requests without output where engines serve pooling.

    Raises
    ------
    InputErrors
        Prompts contain the output of such requests.
    """
    served = [pool.serves for pool in pools if is_pooling(pool)]
    if not served:
        return workload
    if workload.prompts_use_outputs:
        raise InputErrors([KeyFault('engine.task: expected "generate", found "pooling": prompts of this workload '
                                    "contain outputs of earlier requests, and pooling has none")])
    names = list(workload.labels.get("model", ()))
    codes = [-1 if None in served else names.index(name) for name in served if name is None or name in names]
    rows = np.isin(workload.demands["model"], codes) if -1 not in codes else np.ones(len(workload), bool)
    left_out = workload.outcomes["output_tokens"][rows]
    outcomes, demands = workload.outcomes.copy(), workload.demands.copy()
    outcomes["output_tokens"][rows], demands["max_tokens"][rows] = 0, 1
    note = (f"pooling: no output is generated; the workload has {int((left_out > 0).sum()):,} requests with "
            f"{int(left_out.sum()):,} tokens of output, which are left out")
    notes = (*workload.notes, note) if left_out.any() else workload.notes
    return replace(workload, outcomes=outcomes, demands=demands, notes=notes)
