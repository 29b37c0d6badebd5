"""From an experiment to a cluster that is ready to run."""
import math
from functools import partial

import msgspec

from simulator.assembly.budget import check_memory, check_time
from simulator.assembly.gateway import front_of, has_a_gate, health_notes
from simulator.assembly.pool import pool_of
from simulator.assembly.pool_prices import cost_by_hour
from simulator.assembly.requests import chunks_of, meet, requests_of
from simulator.assembly.site import Site, sites_of
from simulator.config import conflicts
from simulator.config.experiment import Experiment
from simulator.engine.build import build as build_cluster
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, Hooks, Pool
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.latency.readings import Readings
from simulator.results.cluster import PoolFacts
from simulator.workload.base import Workload
from simulator.workload.open_ended import ENOUGH, Enough, last_sent_ns

READ_BY_CONFLICTS = ("is_in_lock_step", "layer_groups", "scheduler", "backend")     # facts of a Site


class Prepared(msgspec.Struct, frozen=True):
    """An experiment after its files were read and its models built.

    workload : its `requests` will be written to.
    sites : the Site of each pool.
    pools : as the engine takes them; their latency models keep the state of a single run.
    readings : files that the latency backends have read.
    parts : assembly.parts.base.Part, those that the experiment uses.
    """

    experiment: Experiment
    workload: Workload
    sites: tuple[Site, ...]
    pools: tuple[Pool, ...]
    readings: Readings
    parts: tuple = ()

    @property
    def streams(self) -> dict:
        """Types of the tables that grow during the run, by name."""
        return {name: rows.dtype for part in self.parts for name, rows in part.tables.items() if rows.grows}


def prepare(experiment: Experiment, workload: Workload | None = None, readings: Readings | None = None,
            has_met: bool = False, sites: tuple[Site, ...] = ()) -> Prepared:
    """Read all files and build all models; find all faults.

    workload : requests to serve in place of [workload].
    readings : files already read by latency backends; None: none.
    has_met : the workload is from an earlier call for an equal experiment.
    sites : of an earlier call for an equal experiment; (): none.

    Raises
    ------
    InputErrors
        Faults of facts, memory plan, latency model and workload; an experiment beyond the limits of memory or time.
    """
    check_memory(experiment)
    readings, sites, parts = readings or Readings(), sites or sites_of(experiment), experiment.parts()
    known = [{name: partial(getattr, site, name) for name in READ_BY_CONFLICTS} for site in sites]
    _, workload, *found = collect_faults(
        partial(conflicts.refuse, experiment, known),
        lambda: (chunks_of(experiment) or requests_of(experiment, sites=sites)) if workload is None else workload,
        *[partial(site.named, partial(pool_of, site, readings, experiment.cluster)) for site in sites],
        *[partial(part.prepare, sites) for part in parts])
    workload = workload if has_met else meet(experiment, sites, workload)
    check_time(experiment, workload)
    prepared = Prepared(experiment, workload, sites, tuple(found[:len(sites)]), readings, parts)
    collect_faults(*[partial(part.meet, prepared) for part in parts])
    return prepared


def with_all_requests(prepared: Prepared, monitor=None, readings: Readings | None = None) -> Prepared:
    """Return the experiment with the number of requests that an open-ended load sends.

    The number is known only after a run: the experiment first runs without results, with ever more requests until
    there are enough. If the monitor interrupts it, the workload is still open-ended.

    monitor : as in `build`. readings : as in `prepare`.

    Raises
    ------
    InputErrors
        More requests do not extend the run: each is rejected at its arrival, which triggers the next arrival at once.
    """
    from simulator.results.memory import NO_SINK  # imported only when needed

    experiment, sites, enough, last_ns = prepared.experiment, prepared.sites, ENOUGH, {}
    while prepared.workload.is_open_ended:
        cluster = build(prepared, NO_SINK, monitor)
        finished = cluster.run()
        if monitor is not None and monitor(0, 0):
            break
        counts, are_dry = zip(*cluster.source.used(), strict=True)
        before_ns, last_ns = last_ns, last_sent_ns(prepared.workload, are_dry)
        if finished.complete and last_ns:
            if stuck := [ns for group, ns in last_ns.items() if ns == before_ns.get(group)]:
                raise InputErrors([KeyFault(
                    f"workload.load: clients whose requests are refused send others at once, and never get beyond "
                    f"{stuck[0] / 1e9:g} s; give client_delay_s, or how many requests there are")])
            enough = Enough(4 * enough.guess)
        else:
            enough = Enough(enough.guess, counts)
        prepared = prepare(experiment, requests_of(experiment, enough, sites), readings, sites=sites)
    return prepared


def build(prepared: Prepared, sink, monitor=None, threads: int = 1, serves: tuple[int, int] | None = None,
          source=None):
    """Return the Cluster of an experiment, to be run once.

    sink : receives rows while the cluster runs; its `wants_iterations`, `wants_tokens` and `streams` select the tables.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    threads : maximum threads to simulate independent replicas.
    serves : first and last replica to simulate, as in `ClusterPlan`; None: all.
    source : of requests that are given while the cluster runs, as in `Hooks`: `Cluster.advance` runs it then; None:
        the requests of the workload.
    """
    experiment = prepared.experiment
    notes = health_notes(experiment) if source is None else ()
    pools = tuple(msgspec.structs.replace(pool, notes=(*pool.notes, *notes)) for pool in prepared.pools)
    plan = ClusterPlan(
        pools, front_of(experiment), threads=threads, serves=serves,
        seed=experiment.seed, give_up_ns=round(experiment.cluster.give_up_after_s * 1e9),
        give_up_failing_ns=round(experiment.cluster.give_up_failing_after_s * 1e9),
        horizon_ns=None if math.isinf(experiment.horizon_s) else round(experiment.horizon_s * 1e9),
        keeps_journeys=has_a_gate(experiment.cluster) or any(pool.queue_limits for pool in prepared.pools),
        adds_up=experiment.output.vidur_csv, parts=prepared.parts)
    for part in prepared.parts:
        plan = part.plan(plan, sink)
    if source is not None and prepared.workload.chunks is not None:
        raise InputErrors([KeyFault("output.streamed: expected false: requests are given from outside")])
    if source is not None:      # no replica runs ahead of a request that may come
        plan = msgspec.structs.replace(plan, coupled=True, fast_forward=False)
    recorder = Recorder(sink, sink.wants_iterations, sink.wants_tokens)
    return build_cluster(prepared.workload, plan, Hooks(recorder, monitor, source=source))


def pools_of(experiment: Experiment) -> tuple[PoolFacts, ...]:
    """Return the facts of each pool for the summary; empty without pools."""
    return tuple(PoolFacts(pool.name, pool.places,
                           pool.cost_per_hour / pool.topology.data_parallel,
                           pool.topology.node or (pool.hardware.name if pool.hardware else ""),
                           pool.topology.data_parallel, cost_by_hour(experiment, pool))
                 for pool in experiment.all_pools() if experiment.pools)
