"""From an experiment to a cluster that is ready to run."""
import math
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.budget import check_memory, check_time
from simulator.assembly.costs import places
from simulator.assembly.encoders import encode_plan
from simulator.assembly.experts import expert_shift
from simulator.assembly.gateway import front_of, has_a_gate
from simulator.assembly.latency import latency_model
from simulator.assembly.pool import pool_of
from simulator.assembly.ranks import refuse_moves_in_lock_step, settled_hand_over
from simulator.assembly.requests import meet, requests_of
from simulator.assembly.site import Site, sites_of
from simulator.config.experiment import Experiment
from simulator.config.hand_over import does_either_leg
from simulator.domain import records
from simulator.engine.build import build as build_cluster
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, Hooks, Pool
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.latency.readings import Readings
from simulator.results.cluster import PoolFacts
from simulator.workload.base import Workload
from simulator.workload.open_ended import ENOUGH, Enough, last_sent_ns


class Prepared(msgspec.Struct, frozen=True):
    """An experiment after its files were read and its models built.

    workload : its `requests` will be written to.
    sites : the Site of each pool.
    pools : as the engine takes them; their latency models keep the state of a single run.
    mover : the operation that migrates requests between replicas, in a tuple; empty without migration.
    hand_over : engine.hand_over.plan.HandOverPlan; None without prefill and decode pools.
    shifts : engine.operations.shift_plan.ShiftPlan of each pool, None if the load of its experts is constant.
    encode : engine.encoders.plan.EncodePlan; None without encode pools.
    """

    experiment: Experiment
    workload: Workload
    sites: tuple[Site, ...]
    pools: tuple[Pool, ...]
    mover: tuple
    hand_over: Any = None
    shifts: tuple = ()
    encode: Any = None


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
    readings, sites = readings or Readings(), sites or sites_of(experiment)
    workload, *pools, mover, hand_over, encode = collect_faults(
        lambda: requests_of(experiment, sites=sites) if workload is None else workload,
        *[partial(site.named, partial(pool_of, site, readings, experiment.cluster)) for site in sites],
        lambda: _mover(experiment, sites), lambda: _hand_over(experiment, sites), lambda: encode_plan(experiment))
    workload = workload if has_met else meet(experiment, sites, workload)
    check_time(experiment, workload)
    shifts = tuple(site.named(partial(expert_shift, experiment, site, partial(latency_model, site, readings)))
                   for site in sites)
    return Prepared(experiment, workload, sites, tuple(pools), mover, hand_over, shifts, encode)


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


def build(prepared: Prepared, sink, monitor=None, threads: int = 1, serves: tuple[int, int] | None = None):
    """Return the Cluster of an experiment, to be run once.

    sink : receives rows while the cluster runs; its attributes `wants_iterations` etc. select the tables.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    threads : maximum threads to simulate independent replicas.
    serves : first and last replica to simulate, as in `ClusterPlan`; None: all.
    """
    experiment, upkeep = prepared.experiment, _upkeep(prepared.experiment)
    plan = ClusterPlan(
        prepared.pools, front_of(experiment), threads=threads, serves=serves, hand_over=prepared.hand_over,
        encode=prepared.encode, seed=experiment.seed, give_up_ns=round(experiment.cluster.give_up_after_s * 1e9),
        give_up_failing_ns=round(experiment.cluster.give_up_failing_after_s * 1e9),
        horizon_ns=None if math.isinf(experiment.horizon_s) else round(experiment.horizon_s * 1e9),
        keeps_journeys=has_a_gate(experiment.cluster) or bool(upkeep + prepared.mover),
        keeps_legs=bool(upkeep + prepared.mover),
        tracks_identity=True if any(failure.kind == "link" for failure in experiment.failures) else None,
        adds_up=experiment.output.vidur_csv, moves_requests=experiment.cluster.rescheduling is not None,
        tracer=_tracer(experiment, sink),
        operations=_sampler(experiment, sink) + prepared.mover + upkeep + _expert_shifts(prepared.shifts))
    recorder = Recorder(sink, sink.wants_iterations, sink.wants_tokens)
    return build_cluster(prepared.workload, plan, Hooks(recorder, monitor))


def _sampler(experiment: Experiment, sink) -> tuple:
    """Return the operation that samples the replicas periodically, in a tuple; empty if no samples are requested."""
    if not sink.wants_samples:
        return ()
    from simulator.engine.operations.sampler import Sampler
    from simulator.engine.output.row_stream import RowStream

    rows, period_ns = RowStream(records.SAMPLE, sink.samples), max(round(experiment.output.replica_samples_s * 1e9), 1)
    sink.pending.append(rows.flush)
    return (lambda fleet, gateways, plan: Sampler(fleet, period_ns, rows),)


def _upkeep(experiment: Experiment) -> tuple:
    """Return the operation that fails and scales replicas, in a tuple; empty if their number is fixed."""
    failures, scaling = experiment.failures, experiment.autoscaling
    if not failures and scaling is None:
        return ()
    from simulator.engine.operations.upkeep import Upkeep

    return (partial(Upkeep, failures=failures, health=experiment.cluster.health, autoscaling=scaling,
                    autoscaler=scaling and registry.load("autoscaler", scaling.policy)),)


def _mover(experiment: Experiment, sites: tuple[Site, ...]) -> tuple:
    """Return the operation that migrates requests between replicas, in a tuple; empty without migration."""
    moving = experiment.cluster.rescheduling
    if moving is None:
        return ()
    refuse_moves_in_lock_step(sites)
    from simulator.engine.operations.migration import Migration
    from simulator.engine.operations.move_plan import MovePlan

    plan = MovePlan(
        tuple(site.named(partial(_port, moving, site)) for site in sites),
        mode=moving.mode, max_in=moving.max_migrations_in, max_out=moving.max_migrations_out,
        latency_ns=round(moving.latency_s * 1e9), max_stages=moving.max_stages,
        last_stage_blocks=moving.last_stage_blocks, rescheduler=registry.load("rescheduler", moving.policy),
        parameters=moving.parameters, interval_ns=moving.interval_s and round(moving.interval_s * 1e9))
    return (lambda fleet, gateways, cluster: Migration(fleet, gateways, plan, cluster.seed),)


def _hand_over(experiment: Experiment, sites: tuple[Site, ...]):
    """Return the plan of KV transfer between prefill and decode pools; None without [kv_transfer]."""
    if experiment.kv_transfer is None:
        return None
    from simulator.engine.hand_over.settings import hand_over_plan

    pools, chosen = [site.pool for site in sites], experiment.cluster.disaggregation
    settled_hand_over(experiment, sites)
    deployments = collect_faults(*[partial(getattr, site, "deployment") for site in sites])
    fronts = [front_of(experiment, chosen and getattr(chosen, leg)) for leg in ("prefill", "decode")]
    apart = {pool.serves for pool in pools if pool.role != "both"}
    block_bytes = collect_faults(*[
        partial(_block_bytes, experiment.kv_transfer, site, site.pool.serves in apart) for site in sites])
    either = does_either_leg(experiment.cluster)
    made = hand_over_plan(
        experiment.kv_transfer, [("both" if either else pool.role, pool.serves) for pool in pools], deployments, fronts,
        chosen and (registry.load("decider", chosen.decider), chosen.parameters),
        chosen is None or chosen.stage_order == "decode_first", block_bytes)
    return replace(made, either_leg=either)


def _block_bytes(moving, site: Site, is_apart: bool) -> tuple[float, ...] | None:
    """Return the bytes of a transferred block of each layer group; None: no transfer, or no layer groups."""
    if not is_apart:
        return None
    layers, pool = site.layer_groups, site.pool
    if layers is None:
        return None
    faults = []
    for key, kind, built in (("granularity", "granularities", "prompt"), ("first_token", "first_tokens", "recompute")):
        if moving.chosen(key, kind) != built:
            faults.append(f'kv_transfer.{key}: expected "{built}", found "{moving.chosen(key, kind)}": nothing else is '
                          f'built with layers of several kinds, protocol = "{moving.protocol}"')
    if moving.chosen("volume", "volumes") == "full_prompt":
        faults.append('kv_transfer.volume: expected "missing", found "full_prompt": of layers with windows the decode '
                      "replica has no blocks for all of a prompt")
    if pool.kv_tiers is not None:
        faults.append(f"pools.{pool.name}.kv_tiers: expected none: hand-over together with a KV tier is not built for "
                      "layers of several kinds")
    if site.group_plan is None and moving.kv_bytes_per_token is None:
        faults.append("kv_transfer.kv_bytes_per_token: missing; expected a number, since engine.kv_cache_groups are "
                      "not those of the model")
    if faults:
        raise InputErrors(map(KeyFault, faults))
    if moving.kv_bytes_per_token is not None:
        return tuple(moving.kv_bytes_per_token / len(layers.groups) * group.block_size for group in layers.groups)
    return site.group_plan.moved_bytes(site.stored)


def _port(moving, site: Site):
    """Return the links of the replicas of a pool."""
    from simulator.engine.operations.move_plan import Port

    link = site.kv_link
    token_bytes = moving.kv_bytes_per_token or (link.bytes_per_token if link else 0.0)
    outer = (moving.bandwidth_gb_per_s or 0.0) * 1e9 or (link.scaleout_bytes_per_s if link else 0.0)
    inner = 0.0 if moving.bandwidth_gb_per_s or not link else link.scaleup_bytes_per_s
    faults = []
    if moving.mode != "recompute" and site.layer_groups is not None:
        faults.append(f'cluster.rescheduling.mode: "{moving.mode}" copies the blocks of one block table, and layers '
                      'here have several: expected "recompute", or engine.disable_hybrid_kv_cache_manager = true where '
                      "the model allows it")
    if moving.mode != "recompute" and token_bytes == 0.0:
        faults.append("cluster.rescheduling.kv_bytes_per_token: missing; expected a number, or [model] and [hardware]")
    if moving.mode != "recompute" and outer == 0.0:
        faults.append("cluster.rescheduling.bandwidth_gb_per_s: missing; expected a number, or hardware whose network "
                      "is known")
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return Port(token_bytes * site.pool.engine.block_size, inner, outer, link.replicas_per_domain if link else 1)


def _tracer(experiment: Experiment, sink):
    """Return the recorder of routing decisions, as a plan has it; None if no decisions are requested."""
    if not sink.wants_decisions:
        return None
    from simulator.engine.gateway.tracer import DecisionTracer
    from simulator.engine.output.row_stream import RowStream

    decisions, candidates = RowStream(records.DECISION, sink.decisions), RowStream(records.CANDIDATE, sink.candidates)
    sink.pending += [decisions.flush, candidates.flush]
    return lambda view, index: DecisionTracer(view, index, experiment.output.decisions, decisions, candidates)


def pools_of(experiment: Experiment) -> tuple[PoolFacts, ...]:
    """Return the facts of each pool for the summary; empty without pools."""
    return tuple(PoolFacts(pool.name, places(pool),
                           pool.cost_per_hour / pool.topology.data_parallel,
                           pool.topology.node or (pool.hardware.name if pool.hardware else ""),
                           pool.topology.data_parallel)
                 for pool in experiment.all_pools() if experiment.pools)


def _expert_shifts(shifts: tuple) -> tuple:
    """Return the operation that changes the load of experts, in a tuple; empty if the load is constant."""
    if not any(shifts):
        return ()
    from simulator.engine.operations.expert_shifts import ExpertShifts

    return (partial(ExpertShifts, shifts=shifts),)
