"""Events in the measured window, request by request: ends, and generated tokens.

The time of each token is not kept. A request with first and last token on one side of an edge of the window needs
none; one that generates across an edge has a token for each iteration of its replica that decodes, between its first
and its last: counting them gives the number before the edge, to the token. Where they are more or fewer than its
tokens, since it waited, moved, speculated or shares its replica with other batches in flight, tokens are assumed to be
spread evenly over them, and `Events.num_estimated` counts these requests.
"""
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.iteration_log import Lane


class Events(NamedTuple):
    """Events in a window, by request of the whole run.

    completed : bool, it ended in the window. output_tokens : int64, its tokens generated in it, whatever its outcome.
    prompt_tokens : int64, of its prompt, where its first token was generated in the window. is_estimated : bool, its
    output_tokens are not known to the token.
    """

    completed: np.ndarray
    output_tokens: np.ndarray
    prompt_tokens: np.ndarray
    is_estimated: np.ndarray

    def of(self, rows: np.ndarray) -> "Events":
        """Return the events of some requests."""
        return Events(*(each[rows] for each in self))


def events_of(run: Run) -> Events | None:
    """Return the events in the window of a run; None: it has no window."""
    if run.window is None:
        return None
    requests, window = run.workload.requests, run.window
    completed = (requests["status"] == records.COMPLETED) & window.holds(requests["completed_ns"])
    has_token = requests["output_tokens"] > 0
    is_read = np.where(has_token, window.holds(requests["first_token_ns"]), completed)
    before, is_guess = tokens_before(run, window.begin_ns)
    until, is_other_guess = tokens_before(run, window.end_ns)
    return Events(completed, until - before, np.where(is_read, requests["prompt_tokens"], 0).astype(np.int64),
                  is_guess | is_other_guess)


def tokens_before(run: Run, edge_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens of each request had been generated at an instant.

    int64, and whether the number is estimated, bool.
    """
    requests = run.workload.requests
    begun = (requests["output_tokens"] > 0) & (requests["first_token_ns"] >= 0)
    begun &= requests["first_token_ns"] <= edge_ns
    last_ns = _last_token_ns(run)
    counts = np.where(begun & (last_ns <= edge_ns), requests["output_tokens"], 0).astype(np.int64)
    across = np.flatnonzero(begun & (last_ns > edge_ns))
    evenly, is_guess = np.ones(len(across), bool), np.zeros(len(requests), bool)
    replica = requests["replica"][across]
    for lane in run.iteration_log.by_replica() if run.iteration_log is not None and len(across) else ():
        own = np.flatnonzero(replica == lane.replica)
        if len(own):
            counts[across[own]], is_guess[across[own]] = _on(lane, run, across[own], last_ns[across[own]], edge_ns)
            evenly[own] = False
    rows = across[evenly]
    counts[rows] = _shared(requests["output_tokens"][rows], edge_ns - requests["first_token_ns"][rows],
                           last_ns[rows] - requests["first_token_ns"][rows])
    is_guess[rows] = requests["output_tokens"][rows] > 1
    return counts, is_guess


def _last_token_ns(run: Run) -> np.ndarray:
    """Return the time of the last token of each request; the latest possible time if it did not complete."""
    requests = run.workload.requests
    last_ns = np.where(requests["status"] == records.COMPLETED, requests["completed_ns"], run.clock_ns)
    gave_up = (requests["status"] == records.TIMED_OUT) & (run.workload.demands["deadline_ns"] >= 0)
    last_ns[gave_up] = run.workload.demands["deadline_ns"][gave_up]
    return np.maximum(last_ns, requests["first_token_ns"])


def _on(lane: Lane, run: Run, rows: np.ndarray, last_ns: np.ndarray, edge_ns: int) -> tuple:
    """Return how many tokens of requests on one replica had been generated at an instant.

    Also returns whether the number is estimated. Clients see tokens later than iterations end, by the delay of their
    first token, or of the last.
    """
    requests, decode_ns = run.workload.requests[rows], lane.end_ns[lane.decodes]
    from_end = np.full(len(rows), run.transfers is not None) & (requests["status"] == records.COMPLETED)
    seen_ns = np.where(from_end, last_ns, requests["first_token_ns"])
    at = np.searchsorted(lane.end_ns, seen_ns, side="right") - 1
    late_ns = np.where(at >= 0, seen_ns - lane.end_ns[np.maximum(at, 0)], 0)

    def decoded(times_ns: np.ndarray) -> np.ndarray:
        return np.searchsorted(decode_ns, times_ns - late_ns, side="right")

    later, before, total = requests["output_tokens"] - 1, decoded(edge_ns), decoded(last_ns)
    begun = decoded(requests["first_token_ns"])
    done, all_of_it = before - begun, total - begun
    counts = _shared(requests["output_tokens"], done, all_of_it)
    is_open = (requests["status"] != records.COMPLETED) & (all_of_it >= later)
    counts[is_open] = 1 + np.minimum(done, later)[is_open]
    counts[from_end] = 1 + np.maximum(later - (total - before), 0)[from_end]    # it waited for its KV before
    every = np.maximum(later, 1)
    return counts, ~is_open & ~from_end & (all_of_it % every != 0)      # as many, or batches take turns


def _shared(tokens: np.ndarray, done: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the first token, and of the others as many as `done` of `total`."""
    later = tokens.astype(np.int64) - 1
    share = np.divide(later * done.astype(np.float64), total, out=np.zeros(len(tokens)), where=total > 0)
    return 1 + np.minimum(np.floor(share + 1e-9).astype(np.int64), np.maximum(later, 0))
