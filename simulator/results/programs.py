"""Programs of agents in summary.json: their times, the waits of their turns, KV held while tools run."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.summary_keys import DISTRIBUTION, keys_of

SUMMARY_KEYS = {
    **keys_of(programs__programs="sessions with a measured request that arrived",
              programs__completed="programs with completed turns alone",
              programs__stalled_turns="turns that waited for [cluster.programs]",
              programs__pauses="times that a program was paused", programs__resumes="times that one was resumed",
              programs__demotions="times that one was demoted",
              programs__forced_resumes="turns that waited for resume_timeout_s"),
    **keys_of("ms", programs__time_ms=DISTRIBUTION + "first arrival to last token, of completed programs",
              programs__stalled_ms=DISTRIBUTION + "time for which turns of a program waited for [cluster.programs]"),
    **keys_of("tokens x s", programs__held_token_s="prompt and outputs of a program times the time in which its tools "
              "ran and it was not paused, of all programs")}


def metrics_of(run: Run, columns: dict[str, np.ndarray], counts: dict[str, int]) -> dict:
    """Return the part of the summary about programs, with the keys of SUMMARY_KEYS.

    run : the whole run. columns : "wait_ns" and "held_ns" of each request. counts : of the policy, for the whole run.
    """
    requests, sessions = run.workload.requests, run.workload.demands["session"]
    chosen = (sessions >= 0) & records.has_come(requests["status"])
    if run.workload.measured is not None:
        chosen &= run.workload.measured
    rows = np.flatnonzero(chosen)
    programs, index = np.unique(sessions[rows], return_inverse=True)
    begins_ns, ends_ns = np.full(len(programs), np.iinfo(np.int64).max), np.zeros(len(programs), np.int64)
    np.minimum.at(begins_ns, index, requests["arrival_ns"][rows])
    np.maximum.at(ends_ns, index, requests["completed_ns"][rows])
    broken = np.unique(sessions[(sessions >= 0) & (requests["status"] != records.COMPLETED)])
    is_complete = ~np.isin(programs, broken)
    stalled_ns = np.zeros(len(programs), np.int64)
    np.add.at(stalled_ns, index, columns["wait_ns"][rows])
    tokens = requests["prompt_tokens"][rows].astype(np.int64) + requests["output_tokens"][rows]
    return {
        "programs": len(programs), "completed": int(is_complete.sum()),
        "time_ms": distribution((ends_ns - begins_ns)[is_complete] / 1e6),
        "stalled_turns": int((columns["wait_ns"][rows] > 0).sum()), "stalled_ms": distribution(stalled_ns / 1e6),
        "held_token_s": float((tokens * (columns["held_ns"][rows] / 1e9)).sum()), **counts}


def sentence(programs: dict) -> str:
    """Return in words how many programs completed, and how long they took and waited."""
    mean_ms = programs["time_ms"]["mean"]
    took = "" if mean_ms is None else f", {mean_ms / 1e3:,.2f} s each in the mean"
    return (f"{programs['completed']} of {programs['programs']} completed{took}; {programs['stalled_turns']} turns "
            f"waited, {programs['pauses']} pauses, {programs['forced_resumes']} forced resumes")
