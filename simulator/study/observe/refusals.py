"""Workloads that cannot be sent to a server, and why; warnings before the load."""
import numpy as np

from simulator.errors import InputErrors, KeyFault
from simulator.study.observe.orders import outputs_of
from simulator.workload.base import Workload

SHOWN = 5                       # names in a message


def check_sendable(workload: Workload, num_processes: int = 1) -> None:
    """Refuse a workload that cannot be sent.

    Raises
    ------
    InputErrors
        All reasons.
    """
    faults = []
    if not len(workload):
        faults.append("workload: there is no request to send")
    if workload.items is not None:
        faults.append("workload: prompts hold images, and what is sent is token ids or words: there is no picture")
    if np.any(workload.demands["grammar"] >= 0):
        faults.append("workload: answers keep to grammars, of which only names and sizes are known: there is none")
    named = [str(name) for name in workload.labels.get("model", ())]
    if len(named) > 1:
        shown = ", ".join(named[:SHOWN]) + ", ..." * (len(named) > SHOWN)
        faults.append(f"workload: requests name {len(named)} models ({shown}); one server is sent those of one: keep "
                      "its rows alone")
    if num_processes > 1 and workload.script is not None:
        faults.append(f"--processes {num_processes}: expected 1: here requests come when others have ended, and "
                      "several processes deal rows whose times are known beforehand")
    if faults:
        raise InputErrors([KeyFault(fault) if fault.startswith("workload") else fault for fault in faults])


def longer_than(workload: Workload, max_model_len: int | None) -> str | None:
    """Return a sentence if texts are longer than a server takes.

    None: no text is, or the limit is not known.
    """
    if max_model_len is None:
        return None
    lengths = workload.requests["prompt_tokens"].astype(np.int64) + outputs_of(workload)
    rows = np.flatnonzero(lengths > max_model_len)
    if not len(rows):
        return None
    return (f"{len(rows):,} of {len(workload):,} requests are longer than the server's max_model_len of "
            f"{max_model_len:,} tokens, the longest {int(lengths.max()):,}, prompt and output; it will refuse them, or "
            "cut their outputs")
