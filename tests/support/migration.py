"""Clusters in which requests move."""
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np

from simulator.domain import records
from simulator.engine.build import build
from simulator.engine.operations.migration import Migration
from simulator.engine.operations.move_plan import MovePlan, Port
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import Hooks
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import plan_of

PORT = Port(block_bytes=1e6, inner_bytes_per_s=0.0, outer_bytes_per_s=1e9)      # a block takes 1 ms


def serve(workload, moves=(), *, at=(), plan=None, parameters=None, latency=None, **setup):
    """Run a workload and what moves; return requests, journeys, token times, gaps, counts of moves and the cluster.

    moves : (time in ms, row, destination). at : (time in ms, what is called with Migration and the time in ns). plan :
    MovePlan. setup : fields of Pool and ClusterPlan.
    """
    made = []

    def migration(fleet, gateways, cluster_plan):
        made.append(Migration(fleet, gateways, plan or MovePlan(ports=(PORT,)), cluster_plan.seed))
        return made[0]

    setup = {"num_gpu_blocks": 1000, "block_size": 16, "max_model_len": 4096, "enable_prefix_caching": False} | setup
    cluster_plan = plan_of(
        parameters or VllmParameters(), latency or constant_latency(), operations=(migration,), keeps_journeys=True,
        keeps_legs=True,
        moves_requests=True, **setup)
    tables = _Tables()
    cluster = build(workload, cluster_plan, Hooks(recorder=Recorder(tables, iterations=True, tokens=True)))
    for time_ms, row, destination in moves:
        made[0].at(round(time_ms * 1e6), partial(made[0].move, row, destination))
    for time_ms, action in at:
        made[0].at(round(time_ms * 1e6), partial(action, made[0]))
    run = cluster.run()
    gaps = Counter()
    for gap_ns, count in zip(*(column.tolist() for column in run.itl_ns.pairs()), strict=True):
        gaps[gap_ns] += count
    return SimpleNamespace(
        run=run, requests=workload.requests, journeys=run.journeys, replicas=run.replicas, complete=run.complete,
        token_ms={row: [each / 1e6 for each in times] for row, times in tables.token_times().items()},
        gaps=sorted(gaps.items()), counts=dict(made[0].mover.counts),
        iterations=tables.all_iterations(), cluster=cluster, mover=made[0].mover)


def constant_latency(milliseconds=10.0):
    """Return a latency model under which every iteration takes that long."""
    return Linear(LinearParameters(base_us=milliseconds * 1e3, per_sequence_us=0.0, per_prefill_token_us=0.0,
                                   per_context_token_us=0.0))


def assert_all_free(served):
    """All blocks of all replicas are free, and the books of each agree."""
    for replica in served.cluster.replicas:
        replica.check()
        assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
        assert replica.scheduler.loading == replica.scheduler.loading_tokens == 0
    assert served.mover.transits == {}


class _Tables:
    def __init__(self):
        self._tokens, self._iterations = [], []

    def tokens(self, rows):
        self._tokens.append(rows.copy())

    def iterations(self, rows):
        self._iterations.append(rows.copy())

    def token_times(self):
        times = {}
        for chunk in self._tokens:
            for row, time_ns, count in zip(*(chunk[name].tolist() for name in ("request", "time_ns", "tokens")),
                                           strict=True):
                times.setdefault(row, []).extend([time_ns] * count)
        return times

    def all_iterations(self):
        rows = np.concatenate(self._iterations) if self._iterations else np.empty(0, records.ITERATION)
        return np.sort(rows, order=["replica", "start_ns"])
