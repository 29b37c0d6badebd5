"""Complete records of runs: each decision of each replica."""
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.engine.build import build
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, Hooks
from support.step_log import IterationLimit, StepLog


@dataclass
class Recording:
    """Complete record of a run; requests are identified by their row.

    requests, iterations, replicas : structured arrays, `records.REQUEST`, `ITERATION`, `REPLICA`.
    steps : a dict per scheduling decision, in order of time within each replica; empty without `details`:
        - replica, t_ns, duration_ns, begin_ns, when it began to execute, if it did;
        - scheduled [(row, tokens)], hits {row: tokens} of admissions, drafts {row: n}, preempted [rows];
        - running [rows], waiting [rows], free_blocks, evicted [blocks], cached_hashes, blocks {row: [blocks]},
          free_queue [blocks], all after the decision;
        - where items are encoded: encoder {row: [numbers of its items]}, encoder_evicted [contents], encoder_free
          [places, those not needed any more included];
        - stages [(start_ns, end_ns)] with several pipeline stages;
        - with a KV tier: held [rows], which wait for KV with their blocks, held_blocks {row: [blocks]}, loads [(row,
          tokens, comes_later)], and as reported when the iteration has ended came [rows] and read [rows];
        - with a copying tier: launch_ns, when the copies were done that the step waits for, end_ns of its batch, and
          `copies`, see OffloadingTier.take_log;
        - finished [rows], free_blocks_end, free_queue_end, after its iteration; absent if it did not end.
    token_times : {row: [ns]}, observed.
    itl_gap_ns, itl_count : int64 arrays, inter-token gaps and how many tokens had each.
    diagnosis : reasons for which the run could not continue, one sentence each.
    complete : all requests had ended, or the horizon was reached.
    transfers, legs : structured arrays, as `Run` has them; None: there are none.
    speculation : counts of drafts, as `Run` has them; None: there is no drafter.
    lock_steps : engine.replica.lock_step.LockStep of each engine with ranks in lock step; with `details` its `log` and
        `waves.log` record the common steps of the ranks.
    """

    requests: np.ndarray
    iterations: np.ndarray
    replicas: np.ndarray
    steps: list
    token_times: dict
    itl_gap_ns: np.ndarray
    itl_count: np.ndarray
    diagnosis: list
    complete: bool
    transfers: np.ndarray | None = None
    legs: np.ndarray | None = None
    lock_steps: tuple = ()
    speculation: dict | None = None
    executions: np.ndarray | None = None


def record(workload, plan: ClusterPlan, *, details=True, blocks=True, max_iterations=None) -> Recording:
    """Run a workload and return everything it did; `workload.requests` is written to.

    details : keep `steps`; iterations are then taken one at a time.
    blocks : keep block tables and queues of free blocks in them, 16 bytes a block and decision; else None.
    max_iterations : stop after this many decisions that compute something; only with `details`.
    """
    tables, log = _Tables(), StepLog(max_iterations, blocks) if details else None
    hooks = Hooks(recorder=Recorder(tables, iterations=True, tokens=True), observer=log)
    cluster = build(workload, replace(plan, tracks_identity=True) if details else plan, hooks)
    found = dict.fromkeys(replica.lock_step for replica in cluster.replicas)
    lock_steps = tuple(each for each in found if each is not None)
    if details:
        for lock_step in lock_steps:
            lock_step.keep_log()
        for replica in cluster.replicas:
            replica.scheduler.kv.log_evictions()
            if replica.scheduler.encoder is not None:
                replica.scheduler.encoder.keep_log()
            if replica.scheduler.transfers is not None:
                replica.scheduler.transfers.keep_log()
                replica.scheduler.tier.keep_log()
    try:
        run = cluster.run()
    except IterationLimit:
        run = cluster.stop()
    gap_ns, count = run.itl_ns.pairs()
    return Recording(
        requests=workload.requests, replicas=run.replicas,
        iterations=_joined(tables.iteration_chunks, records.ITERATION),
        steps=log.steps if details else [], token_times=_token_times(_joined(tables.token_chunks, records.TOKEN)),
        itl_gap_ns=gap_ns, itl_count=count, diagnosis=run.diagnosis, complete=run.complete,
        transfers=run.transfers, legs=run.legs, lock_steps=lock_steps, speculation=run.counts.get("speculation"),
        executions=run.executions)


class _Tables:
    """Sink that keeps all rows."""

    def __init__(self):
        self.iteration_chunks, self.token_chunks = [], []

    def iterations(self, rows):
        self.iteration_chunks.append(rows.copy())

    def tokens(self, rows):
        self.token_chunks.append(rows.copy())


def _joined(chunks, dtype):
    return np.concatenate(chunks) if chunks else np.empty(0, dtype)


def _token_times(tokens):
    times = {}
    for row, time_ns, count in zip(*(tokens[name].tolist() for name in ("request", "time_ns", "tokens")), strict=True):
        times.setdefault(row, []).extend([time_ns] * count)
    return times
