"""Workloads from plain arrays."""
import numpy as np

from simulator.domain import records
from simulator.workload.base import Workload


def plain_workload(arrival_ns, prompt_tokens, output_tokens):
    """Return requests that share nothing; arguments are scalars or arrays, arrivals in order."""
    arrival_ns = np.atleast_1d(np.asarray(arrival_ns, np.int64))
    count = len(arrival_ns)
    requests = np.zeros(count, records.REQUEST)
    for field in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        requests[field] = records.NEVER_NS
    requests["replica"] = -1
    requests["arrival_ns"] = arrival_ns
    requests["prompt_tokens"] = prompt_tokens
    demands = np.zeros(count, records.DEMAND)
    for field in ("deadline_ns", "due_ns", "slo_class", "tenant", "session", "model", "adapter", "expected_tokens"):
        demands[field] = -1
    demands["max_tokens"] = np.maximum(output_tokens, 1)
    demands["tie_rank"] = np.arange(count)
    outcomes = np.zeros(count, records.OUTCOME)
    outcomes["output_tokens"] = output_tokens
    return Workload(requests=requests, demands=demands, outcomes=outcomes, segments=np.zeros(0, records.SEGMENT),
                    request_ids=np.arange(count))
