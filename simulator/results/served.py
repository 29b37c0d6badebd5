"""Requests that were not served, by reason: a run that serves few requests reports it before all else."""
from collections import Counter

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.finish import cancelled

MOST_TOKENS = 2**31 - 1          # of a prompt
LEAST_SERVED = 0.5              # of the requests that have ended, or that wait for a token
CAUSES = {                      # causes of the gateway, records.CAUSE_NAMES, in words
    "admission": "by the admission policy", "queue_full": "since the queue of the gateway was full",
    "shed": "since others had more right to its queue", "expired": "since they had waited too long there",
    "recalled": "taken back by the gateway", "no_replica": "since no replica could take them",
    "lost": "since a replica was lost", "kv_load_failed": "since their KV could not be loaded",
    "max_num_queued_reqs": "by their API server, which had max_num_queued_reqs requests in hand",
    "max_num_queued_tokens": "by their API server, which had prompts of max_num_queued_tokens in hand"}
UNSERVED_MODELS = ("no pool serves model", "several models are served")        # engine/unknown_names.py
NO_REPLICA = records.CAUSE_NAMES.index("no_replica")
NAMES = {"rejected": "rejected", "dropped": "dropped by the engine", "timed_out": "timed out", "failed": "failed"}


def is_unserved(run: Run, nothing: bool = False) -> bool:
    """Return whether fewer than half of the requests were served.

    With `nothing`: whether none was. All arrived requests count, except those running at the end of the run, or
    cancelled by the load at its end.
    """
    return is_too_few(*_served(run), nothing)


def is_too_few(completed: int, over: int, nothing: bool = False) -> bool:
    """Return whether too few requests were served, as `is_unserved`.

    completed : requests. over : all that count.
    """
    return over > 0 and (not completed if nothing else completed < LEAST_SERVED * over)


def unserved(run: Run, journeys, whole: Run | None = None) -> str | None:
    """Return why requests were not served, or that none arrived; None: half were.

    Parameters
    ----------
    run : the measured part. journeys : from `journeys_of`. whole : the whole run; None: `run` is the whole.
    """
    came, completed = _num_come(run), _served(run)[0]
    if not came and whole is not None and (others := _num_come(whole)):
        return f"no request is measured: [workload.measure] or a warm-up leaves none of the {others:,} that came"
    if not came:
        return f"no request came before the run ended, after {run.clock_ns / 1e9:g} s"
    if not is_unserved(run):
        return None
    served = "none was" if not completed else f"{completed:,} {'were' if completed > 1 else 'was'}"
    return f"of {came:,} request{'s' * (came > 1)} {served} served: {'; '.join(_why(run, journeys))}"


def turned_away(run: Run, journeys) -> list[str]:
    """Return how many requests were refused, or found no replica, and why.

    Empty if fewer than half of all were served: `unserved` has them then.
    """
    found = [] if is_unserved(run) else [
        *_by_length(run, records.REJECTED), *_by_length(run, records.DROPPED), *_without_replica(run, journeys)]
    return [f"of {_num_come(run):,} requests some were not served: {'; '.join(found)}"] if found else []


def _without_replica(run: Run, journeys) -> list[str]:
    """Return how many requests ended since there was no replica for them, by status.

    Empty where the diagnosis of the engine names models that no pool serves.
    """
    if journeys is None or any(note.startswith(UNSERVED_MODELS) for note in run.diagnosis):
        return []
    status, lost = run.workload.requests["status"], journeys["cause"] == NO_REPLICA
    counts = {words: int((lost & (status == records.STATUS_NAMES.index(name))).sum()) for name, words in NAMES.items()}
    return [f"{count:,} {words} {CAUSES['no_replica']}" for words, count in counts.items() if count]


def _num_come(run: Run) -> int:
    return int(records.has_come(run.workload.requests["status"]).sum())


def _served(run: Run) -> tuple[int, int]:
    """Return the number of completed requests, and of all that count."""
    status = run.workload.requests["status"]
    still = records.has_come(status) & ((status == records.RUNNING) | cancelled(run.workload))
    return int((status == records.COMPLETED).sum()), int((records.has_come(status) & ~still).sum())


def _why(run: Run, journeys) -> list[str]:
    """Return the outcomes of the requests that were not served, with the number of each."""
    status, found = run.workload.requests["status"], []
    for name, words in NAMES.items():
        code = records.STATUS_NAMES.index(name)
        chosen = (status == code) & ~cancelled(run.workload)
        own = _by_length(run, code) if code in (records.REJECTED, records.DROPPED) else []
        counted = _turned_away(run, code) if own else np.zeros(len(status), bool)
        found += own
        rest = chosen & ~counted
        causes = Counter(() if journeys is None else journeys["cause"][rest].tolist())
        for cause, count in sorted(causes.items()) if causes else [(0, int(rest.sum()))]:
            if count:
                why = CAUSES.get(records.CAUSE_NAMES[cause], "")
                found.append(f"{count:,} {words}{' ' * bool(why)}{why}")
    waiting = int((status == records.WAITING).sum())
    return found + ([f"{waiting:,} still waited at the end of the run"] if waiting else [])


def _turned_away(run: Run, status: int) -> np.ndarray:
    """Return a mask of requests that a replica refused, on arrival or later for their length, bool (n,)."""
    requests, replica = run.workload.requests, run.workload.requests["replica"]
    refused = (requests["status"] == status) & (replica >= 0)
    if run.journeys is not None:        # those with a cause have reached no replica
        refused &= run.journeys["cause"][:len(refused)] == records.CAUSE_NAMES.index("")
    if status != records.REJECTED or not run.limits or not refused.any():
        return refused & (requests["enqueued_ns"] < 0)
    shortest = np.array([min((limit for limit, _ in rejects if limit >= 0), default=MOST_TOKENS)
                         for rejects, _ in run.limits])
    return refused & ((requests["enqueued_ns"] < 0) | (requests["prompt_tokens"] > shortest[replica]))


def _by_length(run: Run, status: int) -> list[str]:
    """Return how many requests replicas refused for each limit; empty where the limits are not known."""
    return limit_texts(status, *counts_by_limit(run, status)[:2])


def counts_by_limit(run: Run, status: int) -> tuple[Counter[str], dict[str, int], int]:
    """Count the requests that replicas refused, for each limit.

    Nothing where the limits are not known.

    Returns
    -------
    tuple
        Number of requests by the words of the limit; the longest of their prompts, tokens; the number of all.
    """
    requests, counts, longest = run.workload.requests, Counter(), {}
    rows = np.flatnonzero(_turned_away(run, status)) if run.limits else np.empty(0, np.int64)
    replicas = requests["replica"][rows]
    for replica in np.unique(replicas).tolist():
        lengths = requests["prompt_tokens"][rows[replicas == replica]]
        rejects, dropped = run.limits[replica]
        for limit, words in rejects if status == records.REJECTED else ((-1, dropped),):
            over = lengths > limit if limit >= 0 else np.ones(len(lengths), bool)
            if over.any():
                counts[words] += int(over.sum())
                longest[words] = max(longest.get(words, 0), int(lengths[over].max()))
            lengths = lengths[~over]
    return counts, longest, len(rows)


def limit_texts(status: int, counts: Counter[str], longest: dict[str, int]) -> list[str]:
    """Return a text for each limit, given what `counts_by_limit` found."""
    verb = "rejected" if status == records.REJECTED else "dropped"
    return [f"{count:,} {verb}, of up to {longest[words]:,} prompt tokens, which {words}"
            for words, count in counts.items()]
