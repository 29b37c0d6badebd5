"""Which requests count in the summary: [workload.measure] and [workload.warmup]."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.load import Measure
from simulator.domain.run import Run


def measured_rows(run: Run, measure: Measure) -> np.ndarray | None:
    """Return which requests are measured, bool (n,); None: all are.

    Those that the load sent to warm up never are. Requests that never came are, so that their number is told.
    """
    workload = run.workload
    requests = workload.requests
    if measure == Measure() and not workload.num_warmups:
        return None
    counts = np.ones(len(requests), bool)
    counts[len(requests) - workload.num_warmups:] = False
    sent = np.flatnonzero(counts & records.has_come(requests["status"]))
    sent = sent[np.argsort(requests["arrival_ns"][sent], kind="stable")]
    counts[sent[:measure.warmup_requests]] = False
    counts[sent[len(sent) - min(measure.cooldown_requests, len(sent)):]] = False
    began_ns = int(requests["arrival_ns"][sent[0]]) if len(sent) and workload.num_warmups else 0
    counts[sent[requests["arrival_ns"][sent] < began_ns + round(measure.warmup_s * 1e9)]] = False
    if measure.cooldown_s > 0:
        done = requests["status"] == records.COMPLETED
        last_ns = int(requests["completed_ns"][done].max(initial=0))
        counts[done & (requests["completed_ns"] > last_ns - round(measure.cooldown_s * 1e9))] = False
    return counts


def measured_part(run: Run) -> Run:
    """Return what the metrics of requests are made of."""
    workload, counts = run.workload, run.workload.measured
    if counts is None:
        return run
    part = replace(
        workload, requests=workload.requests[counts], demands=workload.demands[counts],
        outcomes=workload.outcomes[counts], request_ids=_chosen(workload.request_ids, counts), num_warmups=0,
        measured=None, pool_cuts=workload.pool_cuts if workload.pool_cuts is None else workload.pool_cuts[counts],
        scheduled_ns=None if workload.scheduled_ns is None else workload.scheduled_ns[counts])
    left_out = int(len(counts) - counts.sum())
    note = (f"{left_out} of {len(counts)} requests are not measured ([workload.measure], [workload.warmup]): metrics "
            "of requests leave them out; itl_ms, iterations, preemptions, caches and replicas count all")
    empty = ["no request is measured: [workload.measure] leaves none"] if not counts.any() else []
    came = part.requests["arrival_ns"][part.requests["arrival_ns"] >= 0]
    journeys, transfers, first_answer_ns = (
        None if each is None else each[counts] for each in (run.journeys, run.transfers, run.first_answer_ns))
    return replace(run, workload=part, journeys=journeys, transfers=transfers, first_answer_ns=first_answer_ns,
                   encoding=run.encoding and run.encoding.of(counts),
                   since_ns=int(came.min()) if len(came) else 0,
                   diagnosis=[*run.diagnosis, note, *empty])


def _chosen(ids, counts: np.ndarray):
    return ids[counts] if isinstance(ids, np.ndarray) else [ids[row] for row in np.flatnonzero(counts)]
