"""The reason for the end of each request's output."""
import numpy as np

from simulator.domain import records
from simulator.workload.budgets import is_declared

BLOCK_ROWS = 1 << 16            # processed together
RECALLED = records.CAUSE_NAMES.index("recalled")
_BY_STATUS = {"rejected": records.REFUSED, "dropped": records.ERROR, "failed": records.ERROR,
              "timed_out": records.TIMEOUT}


def finish_codes(workload, journeys: np.ndarray | None = None, part: slice = slice(None)) -> np.ndarray:
    """Return the place in `records.FINISH_NAMES` for each request, int8.

    A completed request stops by itself if its true length was reached, else at the limit that its client declared, else
    at max_model_len, or where its engine lets it grow no further for the size of its KV pool. Of two limits met at once
    the first counts, for vLLM looks for the end of the text first and the second cuts nothing. A request that
    the gateway took off its replica is aborted, one still running after the grace of a load is cancelled; an unfinished
    one has no reason.

    Parameters
    ----------
    workload : simulator.workload.base.Workload
    journeys : from `journeys_of`.
    part : rows of the request table.

    Notes
    -----
    Source: vLLM, vllm/v1/core/sched/utils.py, check_stop.
    """
    requests = workload.requests[part]
    status, tokens = requests["status"], requests["output_tokens"]
    by_status = np.zeros(len(records.STATUS_NAMES), np.int8)
    for name, code in _BY_STATUS.items():
        by_status[records.STATUS_NAMES.index(name)] = code
    codes = by_status[status]
    if journeys is not None:
        codes[(journeys["cause"][part] == RECALLED) & (status > records.COMPLETED)] = records.ABORT
    codes[cancelled(workload, part)] = records.CANCELLED
    ended = status == records.COMPLETED
    by_itself = tokens >= workload.outcomes["output_tokens"][part]
    at_limit = (tokens >= workload.demands["max_tokens"][part]) & is_declared(workload.facts, part)
    reason = np.where(by_itself, records.STOP, np.where(at_limit, records.LENGTH, records.MAX_MODEL_LEN))
    if workload.pool_cuts is not None:
        reason[(reason == records.MAX_MODEL_LEN) & workload.pool_cuts[part]] = records.KV_POOL
    codes[ended] = reason[ended]
    return codes


def cancelled(workload, part: slice = slice(None)) -> np.ndarray:
    """Return a mask of requests that the load cancelled at its end, bool (n,)."""
    status = workload.requests["status"][part]
    if workload.script is None or not workload.script.cancels:
        return np.zeros(len(status), bool)
    own = workload.demands["deadline_ns"][part] != workload.demands["due_ns"][part]
    return own & (status == records.TIMED_OUT)


def cut_short(workload, reason: int = records.MAX_MODEL_LEN) -> np.ndarray:
    """Return the rows of completed requests that a limit cut, e.g. max_model_len."""
    parts = [np.empty(0, np.int64)]
    for first in range(0, len(workload.requests), BLOCK_ROWS):
        codes = finish_codes(workload, part=slice(first, first + BLOCK_ROWS))
        parts.append(first + np.flatnonzero(codes == reason))
    return np.concatenate(parts)
