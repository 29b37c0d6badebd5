"""Notes on runs that end before their requests, and on requests that never arrive."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run


def cut_notes(run: Run, counts: np.ndarray | None = None) -> list[str]:
    """Return a note if the horizon, or a stop, cut a run, with the requests left.

    All requests of the run count, measured or not. A run that is complete without a horizon was not cut: where requests
    wait for ever then, or a replica cannot continue, the diagnosis of the engine says why.

    counts : of the requests by status; None: `run` has all requests.
    """
    if run.complete and run.horizon_ns is None:
        return []
    if not run.complete and any(note.startswith(("replica ", "the run stood still")) for note in run.diagnosis):
        return []
    if counts is None:
        counts = np.bincount(run.workload.requests["status"], minlength=len(records.STATUS_NAMES))
    ran, waited, pending = (int(counts[code]) for code in (records.RUNNING, records.WAITING, records.PENDING))
    goes_on = _goes_on(run)
    if not (ran or waited or pending or goes_on):
        return []
    lead = "the run stopped" if not run.complete else "horizon_s cut the run"
    text = f"{lead} at {run.clock_ns / 1e9:g} s: of {int(counts.sum()):,} requests {ran:,} ran, {waited:,} waited " \
           f"and {pending:,} had not come"
    if goes_on:
        text += "; clients would have sent more"
    if not counts[records.COMPLETED]:
        text += "; none is complete, so that latencies are blank and rates 0"
    return [text]


def unsent_notes(run: Run) -> list[str]:
    """Return a note on requests never sent, since one before them did not complete."""
    workload, script = run.workload, run.workload.script
    if script is None or script.play_begins is None:
        return []
    status = workload.requests["status"]
    never = status == records.NOT_SENT
    if not never.any():
        return []
    play_of = np.repeat(np.arange(len(script.play_begins) - 1), np.diff(script.play_begins))
    has_failed = records.has_come(status[:len(play_of)]) & (status[:len(play_of)] > records.COMPLETED)
    if script.goes_on_after_rejection:
        has_failed &= ~np.isin(status[:len(play_of)], (records.REJECTED, records.DROPPED))
    lost = never[:len(play_of)] & np.isin(play_of, play_of[has_failed])
    count = int(lost.sum())
    if not count:
        return []
    return [f"{count:,} request{'s' * (count > 1)} never came: one that {'they wait' if count > 1 else 'it waits'} for "
            "did not complete"]


def _goes_on(run: Run) -> bool:
    """Return whether clients with a load bounded only by its end would have sent more: such requests have no rows."""
    script = run.workload.script
    if script is None:
        return False
    begins_ns: list[int] = []           # the earliest: an awaited group may take longer
    for group in script.groups:
        before = None if group.after < 0 else script.groups[group.after]
        begins_ns.append(group.interval_ns + (0 if before is None else begins_ns[group.after] + before.lasts_ns))
    return any(group.is_counted and begin_ns + _lasts_ns(group) > run.clock_ns
               for group, begin_ns in zip(script.groups, begins_ns, strict=True))


def _lasts_ns(group) -> int:
    if group.ends_ns is not None:
        return group.ends_ns
    return 0 if group.slots is None or group.slots.closes_ns is None else int(group.slots.closes_ns.max(initial=0))
