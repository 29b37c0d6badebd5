"""Items of prompts as jobs: one job per item, in order of requests and, within a prompt, of position."""
import msgspec
import numpy as np

from simulator.domain import records
from simulator.domain.items import Items


class JobRequests(msgspec.Struct, frozen=True):
    """Jobs in the form in which a router reads requests.

    requests : structured array (jobs,), `records.REQUEST`; the prompt is as long as the item.
    demands : structured array (jobs,), `records.DEMAND`; the session is the item's content.
    """

    requests: np.ndarray
    demands: np.ndarray


def jobs_of(items: Items) -> np.ndarray:
    """Return a row for each item, structured array (jobs,), `records.ENCODE_JOB`."""
    jobs = np.zeros(len(items.table), records.ENCODE_JOB)
    counts = np.diff(items.begins)
    for name in ("queued_ns", "start_ns", "end_ns", "sent_ns", "transferred_ns"):
        jobs[name] = records.NEVER_NS
    jobs["request"] = np.repeat(np.arange(len(counts)), counts)
    jobs["item"] = np.arange(len(jobs)) - items.begins[jobs["request"]]
    jobs["embeddings"], jobs["replica"] = items.table["tokens"], -1
    return jobs


def one_by_one(items: Items) -> Items:
    """Return the items as if each were a prompt by itself."""
    table = items.table.copy()
    table["offset"] = 0
    return Items(np.arange(len(table) + 1, dtype=np.int64), table, items.num_contents, items.work)


def as_requests(items: Items) -> JobRequests:
    """Return the items as requests."""
    requests = np.zeros(len(items.table), records.REQUEST)
    demands = np.zeros(len(items.table), records.DEMAND)
    requests["prompt_tokens"], requests["replica"] = items.table["tokens"], -1
    for name in ("deadline_ns", "due_ns", "slo_class", "tenant", "model", "adapter", "grammar", "expected_tokens"):
        demands[name] = -1
    demands["session"] = items.table["content"]
    return JobRequests(requests, demands)
