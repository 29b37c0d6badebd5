"""The measured part of a run: [workload.measure], [workload.warmup] and the warm-up that studies cut.

It has two effects. Latencies, and counts of requests, are those of the measured requests. Rates, sums of
tokens, money, energy and the use of replicas are those of a window of time, with all events in it, of every
request: in a closed loop measured requests share accelerators with others all the time, and their tokens alone,
divided by their time, would describe only a part of the server.
"""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.load import Measure
from simulator.domain.run import Run
from simulator.domain.window import Window
from simulator.results.iteration_log import IterationLog
from simulator.workload.base import Workload


def log_for(workload: Workload, measure: Measure, is_settled: bool = False) -> IterationLog | None:
    """Return the log of iteration times; None: the whole run is measured.

    is_settled : a study may cut more of the finished run.
    """
    is_part = is_settled or measure != Measure() or workload.num_warmups
    return IterationLog() if is_part else None


def measured_rows(run: Run, measure: Measure) -> np.ndarray | None:
    """Return which requests are measured, bool (n,); None: all are.

    Warm-ups of the load never are. Requests that never arrived are, so that they are counted.
    """
    workload = run.workload
    requests = workload.requests
    if measure == Measure() and not workload.num_warmups:
        return None
    counts, sent = np.ones(len(requests), bool), _sent(run)
    counts[len(requests) - workload.num_warmups:] = False
    counts[sent[:measure.warmup_requests]] = False
    counts[sent[len(sent) - min(measure.cooldown_requests, len(sent)):]] = False
    counts[sent[requests["arrival_ns"][sent] < _warm_ns(run, sent, measure)]] = False
    if measure.cooldown_s > 0:
        done = requests["status"] == records.COMPLETED
        counts[done & (requests["completed_ns"] > _last_ns(run) - round(measure.cooldown_s * 1e9))] = False
    return counts


def window_of(run: Run, measure: Measure) -> Window | None:
    """Return the window of [workload.measure]; None: the whole run.

    It begins with the first measured request, or `warmup_s` after the beginning of the load where that is
    later; it ends with the last end of a request that `cooldown_requests` keeps, or `cooldown_s` before the last
    completion where that is earlier. Where no request completes, the end of the run is used as the last completion.
    """
    if measure == Measure() and not run.workload.num_warmups:
        return None
    requests, sent = run.workload.requests, _sent(run)
    begin_ns, end_ns = _warm_ns(run, sent, measure), _last_ns(run)
    if measure.warmup_requests:
        left = sent[measure.warmup_requests:]
        begin_ns = max(begin_ns, int(requests["arrival_ns"][left[0]]) if len(left) else end_ns)
    if measure.cooldown_requests:
        left = requests[sent[:max(len(sent) - measure.cooldown_requests, 0)]]
        over_ns = np.where(left["status"] == records.COMPLETED, left["completed_ns"], left["arrival_ns"])
        end_ns = min(end_ns, int(over_ns.max(initial=begin_ns)))
    end_ns = min(end_ns, _last_ns(run) - round(measure.cooldown_s * 1e9))
    return Window(begin_ns, max(begin_ns, end_ns))


def narrowed(run: Run, counts: np.ndarray) -> Window:
    """Return the window of a run with fewer measured requests.

    It begins with the first measured request, and no earlier than before.
    """
    window = run.window or Window(0, _last_ns(run))
    arrival_ns = run.workload.requests["arrival_ns"][counts]
    first_ns = int(arrival_ns[arrival_ns >= 0].min(initial=window.end_ns))
    return window._replace(begin_ns=min(max(window.begin_ns, first_ns), window.end_ns))


def _sent(run: Run) -> np.ndarray:
    """Return the rows of the requests that arrived, in order of time, without warm-ups."""
    requests = run.workload.requests[:len(run.workload.requests) - run.workload.num_warmups]
    sent = np.flatnonzero(records.has_come(requests["status"]))
    return sent[np.argsort(requests["arrival_ns"][sent], kind="stable")]


def _warm_ns(run: Run, sent: np.ndarray, measure: Measure) -> int:
    """Return the end of `warmup_s`; warm-up requests were sent before."""
    began_ns = int(run.workload.requests["arrival_ns"][sent[0]]) if len(sent) and run.workload.num_warmups else 0
    return began_ns + round(measure.warmup_s * 1e9)


def _last_ns(run: Run) -> int:
    """Return the last completion, or the end of the run where there is none."""
    requests = run.workload.requests
    return int(requests["completed_ns"].max(initial=0)) or int(run.clock_ns)


def measured_part(run: Run) -> Run:
    """Return the run of which metrics of requests are computed."""
    workload, counts = run.workload, run.workload.measured
    if counts is None:
        return run
    part = replace(
        workload, requests=workload.requests[counts], demands=workload.demands[counts],
        outcomes=workload.outcomes[counts], request_ids=_chosen(workload.request_ids, counts), num_warmups=0,
        measured=None, pool_cuts=workload.pool_cuts if workload.pool_cuts is None else workload.pool_cuts[counts],
        scheduled_ns=None if workload.scheduled_ns is None else workload.scheduled_ns[counts])
    journeys, transfers, first_answer_ns = (
        None if each is None else each[counts] for each in (run.journeys, run.transfers, run.first_answer_ns))
    return replace(run, workload=part, journeys=journeys, transfers=transfers, first_answer_ns=first_answer_ns,
                   diagnosis=[*run.diagnosis, *_notes(run)])


def _notes(run: Run) -> list[str]:
    """Return notes on the numbers that leave requests or time out."""
    counts, window = run.workload.measured, run.window
    notes = [f"{int(len(counts) - counts.sum())} of {len(counts)} requests are not measured ([workload.measure], "
             "[workload.warmup], the warm-up of a study): latencies and counts of requests leave them out; itl_ms, "
             "iterations, preemptions and caches count all"]
    if window is not None:
        notes.append(f"throughput, goodput, cost, energy and the use of replicas are of the window from "
                     f"{window.begin_ns / 1e9:,.3f} to {window.end_ns / 1e9:,.3f} s, with all requests that it holds")
    if window is not None and window.duration_ns <= 0:
        notes.append("the window that is measured is empty: rates are 0, for nothing can happen in it")
    return notes


def _chosen(ids, counts: np.ndarray):
    return ids[counts] if isinstance(ids, np.ndarray) else [ids[row] for row in np.flatnonzero(counts)]
