"""Facts that only some workloads have about their requests, and their outcomes: columns of /requests and metrics."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.token_times import TokenTimes
from simulator.workload.base import Workload
from simulator.workload.limits import MISSING

UNKNOWN = NO_RANK = -1


def ranks(run: Run) -> np.ndarray | None:
    """Return the data-parallel rank of each request; None: all replicas have one rank."""
    if not run.replicas["rank"].any():
        return None
    return np.append(run.replicas["rank"], NO_RANK)[run.workload.requests["replica"]]


# Columns of /requests that follow from a run: their types, and functions that return the values (n,) or None.
DERIVED = {
    "rank": ("i4", ranks),
    "first_answer_ns": ("i8", lambda run: run.first_answer_ns),
}
# Columns of /requests that depend on the run, with their types; a new one of DERIVED is the last.
COLUMNS = dict.fromkeys(("rank", "due_ns", "expected_tokens", "reasoning_tokens", "first_answer_ns", "num_images",
                         "image_tokens", "encoded_tokens", "loaded_tokens", "stored_tokens"), "i4") | {
    "encoded_tokens": "i8", "execution_ns": "i8", "preempted_ns": "i8", "prefill_replica": "i4",
    **dict.fromkeys(("prefill_done_ns", "transfer_start_ns", "transfer_end_ns", "transfer_bytes"), "i8"),
    "due_ns": "i8"} | {name: kind for name, (kind, _) in DERIVED.items()}


def traits_of(run: Run) -> dict[str, np.ndarray]:
    """Return the columns of `COLUMNS` and of parts that this run has, each (n,).

    -1: not known.
    """
    workload = run.workload
    found = {name: workload.demands[name] for name in ("due_ns", "expected_tokens")
             if (workload.demands[name] != UNKNOWN).any()}
    found |= {name: np.where(values == MISSING, UNKNOWN, values) for name, values in workload.facts.items()}
    found |= {name: values for name, (_, values_of) in DERIVED.items() if (values := values_of(run)) is not None}
    if run.executions is not None:
        found |= {name: run.executions[name] for name in ("execution_ns", "preempted_ns")}
    found |= run.columns
    return {name: found[name] for name in (*COLUMNS, *run.columns) if name in found}


def metrics_of(run: Run) -> dict:
    """Return the part of the summary about deadlines, answers and images.

    It is empty where there are none. `encoder` counts the embeddings of the images of all scheduled
    requests, and those that were computed: less, since images repeat or are part of a cached prefix. `missed`
    counts the requests that had not completed at their deadline; later deadlines count as `given` alone.
    `ttfat_ms` is arrival to the first token behind the reasoning, of completed requests that have one.
    """
    facts, requests = {}, run.workload.requests
    due_ns = run.workload.demands["due_ns"]
    came = records.has_come(requests["status"])
    if np.any(has_one := came & (due_ns >= 0)):
        is_kept = (requests["status"] == records.COMPLETED) & (requests["completed_ns"] <= due_ns)
        is_open = (requests["status"] < records.COMPLETED) & (due_ns >= run.clock_ns)
        missed = int((has_one & ~is_kept & ~is_open).sum())
        facts["deadlines"] = {"given": int(has_one.sum()), "missed": missed}
    if run.first_answer_ns is not None:
        chosen = (requests["status"] == records.COMPLETED) & (run.first_answer_ns >= 0)
        since_ns = run.first_answer_ns[chosen] - requests["arrival_ns"][chosen]
        facts["ttfat_ms"] = distribution(since_ns / 1e6)
    if "encoded_tokens" in run.columns and run.workload.items is not None:
        items, began = run.workload.items, requests["scheduled_ns"] >= 0
        facts["encoder"] = {"item_tokens": int(items.tokens_of(len(requests))[began].sum()),
                            "encoded_tokens": int(run.columns["encoded_tokens"].sum())}
    return facts


def has_reasoning(workload: Workload) -> bool:
    """Return whether times of tokens are needed for the begin of answers."""
    return "reasoning_tokens" in workload.facts


def first_answers(workload: Workload, token_times: TokenTimes) -> np.ndarray:
    """Return when the first token behind each request's reasoning was seen.

    As int64 ns (n,); -1: there is none, or the client of a request to another region had given up before its last
    token. For a request that started over the last start counts.
    """
    first_ns = np.full(len(workload), records.NEVER_NS)
    reasoning, outputs = workload.facts["reasoning_tokens"], workload.requests["output_tokens"]
    rows = np.flatnonzero((reasoning != MISSING) & (outputs > reasoning))
    first_ns[rows] = token_times.from_the_end(rows, (outputs[rows] - reasoning[rows]).astype(np.int64))
    return first_ns
