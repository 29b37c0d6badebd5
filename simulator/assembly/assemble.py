"""From an experiment to a cluster that is ready to run."""
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.budget import check_memory, check_time
from simulator.assembly.context import block_tokens
from simulator.assembly.costs import places
from simulator.assembly.drafts import draft_deployment, drafter_memory
from simulator.assembly.encoders import encode_plan, num_replicas
from simulator.assembly.experts import exchanging, expert_shift
from simulator.assembly.kernel_notes import kernel_notes
from simulator.assembly.latency import errors_of, host_times, latency_model
from simulator.assembly.model import model_of
from simulator.assembly.ranks import is_in_lock_step, lock_step, marches, rank_front, ranks_per_choice
from simulator.assembly.requests_and_engines import meet
from simulator.config import conflicts
from simulator.config.experiment import Experiment
from simulator.config.hand_over import does_either_leg
from simulator.domain import records
from simulator.domain.block_shapes import block_faults
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_node, load_node_with
from simulator.domain.hardware_spec import AcceleratorSpec, NodeSpec
from simulator.domain.kv_groups import plan_groups
from simulator.domain.kv_link import kv_link
from simulator.domain.layer_groups import GroupRules, LayerGroups
from simulator.domain.memory_plan import EngineLimits, MemoryPlan, plan_within
from simulator.domain.parallelism import Parallelism
from simulator.domain.slo_classes import by_name
from simulator.engine.build import build as build_cluster
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, GatewayPlan, Hooks, Pool
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.experts.faults import expert_faults
from simulator.latency.readings import Readings
from simulator.results.cluster import PoolFacts
from simulator.workload.base import Workload
from simulator.workload.load import load as load_workload
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
    sites: tuple["Site", ...]
    pools: tuple[Pool, ...]
    mover: tuple
    hand_over: Any = None
    shifts: tuple = ()
    encode: Any = None


class Site(msgspec.Struct, frozen=True):
    """Derived facts of a deployment: model on accelerators, limits, KV blocks.

    deployment : model and accelerators; None if the experiment names none.
    max_model_len : longest text, prompt and output, in tokens.
    num_gpu_blocks : KV blocks of each replica, including the null block, as in vLLM.
    memory : MemoryPlan from which num_gpu_blocks follows; None if the experiment gives num_gpu_blocks.
    layer_groups : LayerGroups with separate block tables; None: all layers share one block table.
    block_tokens : tokens of a KV block that several accelerators share; 0: blocks are not shared.
    draft : draft model on its accelerators; None: none is named.
    """

    deployment: Deployment | None
    max_model_len: int
    num_gpu_blocks: int
    memory: MemoryPlan | None
    layer_groups: LayerGroups | None = None
    block_tokens: int = 0
    draft: Deployment | None = None

    def explain(self) -> list[str]:
        """Return text lines on the use of memory, and on separate block tables."""
        if self.memory is not None:
            lines = self.memory.explain().splitlines()
        else:
            lines = self.layer_groups.explain() if self.layer_groups else []
            if self.block_tokens:
                lines.append(f"{self.num_gpu_blocks} blocks of {self.block_tokens} tokens, shared by several "
                             "accelerators")
        if self.layer_groups is None and self.deployment is not None and self.deployment.model.sliding_attention:
            lines.append("one block table for all layers: each keeps a token to the end, whatever its window")
        return lines + (self.deployment.kv_cache_notes() if self.deployment is not None else [])


def survey(experiment: Experiment) -> Site:
    """Work out deployment, longest text and KV blocks.

    experiment : or one of its pools, also in the functions below.

    Raises
    ------
    InputErrors
        Facts that cannot be read, a model that cannot be spread as asked or does not fit.
    """
    deployment, max_model_len = collect_faults(lambda: deployment_of(experiment), lambda: _longest_text(experiment))
    engine = experiment.engine
    scheduler, rules = registry.load("scheduler", engine.scheduler), _group_rules(engine)
    layers, draft = collect_faults(lambda: _layer_groups(experiment, rules, max_model_len),
                                   lambda: draft_deployment(experiment, deployment, max_model_len))
    if faults := list(scheduler.layer_faults(engine.parameters, layers, engine.enable_prefix_caching)):
        raise InputErrors([KeyFault(f"engine.{key}: {message}") for key, message in faults])
    if engine.num_gpu_blocks is not None:
        is_shared = layers is None and experiment.topology.decode_context_parallel > 1
        return Site(deployment, max_model_len, engine.num_gpu_blocks, None, layers,
                    block_tokens(experiment) if is_shared else 0, draft)
    drafter = drafter_memory(experiment, deployment, draft, layers)
    try:
        needs = scheduler.memory(engine.parameters, deployment, max_model_len)
        memory = plan_within(exchanging(experiment, deployment), EngineLimits(
            block_size=engine.block_size, max_model_len=max_model_len, drafter=drafter, grouping=rules,
            max_num_batched_tokens=needs.max_num_batched_tokens, max_num_seqs=needs.max_num_seqs,
            share=needs.share, has_old_kernels=needs.has_old_kernels, adapter_bytes=needs.adapter_bytes), needs.reserve)
    except ValueError as error:         # DoesNotFit, or a scheduler that does not state its needs
        raise InputErrors([KeyFault(f"engine.num_gpu_blocks: {error}")]) from None
    return Site(deployment, max_model_len, memory.num_gpu_blocks, memory, layers, draft=draft)


def _group_rules(engine) -> GroupRules | None:
    """Return the scheduler's rules for separate block tables of layer kinds; None: it has no such rules."""
    rules = registry.load("scheduler", engine.scheduler).facts(engine.parameters).grouping
    return rules and replace(rules, enable_prefix_caching=engine.enable_prefix_caching)


def _layer_groups(experiment: Experiment, rules: GroupRules | None, max_model_len: int) -> LayerGroups | None:
    """Return the groups of layers with separate block tables, as given or by the model."""
    block_size = experiment.engine.block_size
    if rules is None:
        return None
    if rules.given:
        return rules.groups_given(block_size, max_model_len, experiment.topology.decode_context_parallel)
    if experiment.model is None:
        enabled = None
    else:
        stored = _deployment(experiment, None)
        enabled = plan_groups(stored, block_size, max_model_len, replace(rules, is_disabled=False))
    if not rules.is_disabled:
        return enabled and enabled.layers
    key = "engine.disable_hybrid_kv_cache_manager: expected false, found true"
    try:
        groups = enabled and plan_groups(stored, block_size, max_model_len, rules)
    except ValueError as error:
        raise InputErrors([KeyFault(f"{key}: {error}")]) from None
    if groups == enabled:
        raise InputErrors([KeyFault(f"{key}: all layers are of one kind, and cannot be changed")])
    return None


def _longest_text(experiment: Experiment) -> int:
    """Return max_model_len, or refuse one above the model's maximum.

    Source: vllm-project/vllm, vllm/config/model.py, _get_and_verify_max_len.
    """
    engine = experiment.engine
    asked, is_allowed = engine.max_model_len, engine.allow_long_max_model_len
    if experiment.model is None:
        if is_allowed:
            raise InputErrors([KeyFault("engine.allow_long_max_model_len: without [model] there is no maximum that "
                                        "it could lift; expected false")])
        return asked
    model = model_of(experiment.model)
    longest = model.max_position_embeddings
    if asked is not None and asked > longest and not is_allowed:
        raise InputErrors([KeyFault(
            f"engine.max_model_len: expected at most {longest}, the maximum of {model.name}, found {asked}; vLLM "
            "refuses it too. allow_long_max_model_len = true takes it, like vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN")])
    return asked or longest


def operator_errors(pool, site: Site) -> dict:
    """Return OperatorError by operator, from the latency backend of a pool."""
    return errors_of(pool, site)


def prepare(experiment: Experiment, workload: Workload | None = None, readings: Readings | None = None,
            has_met: bool = False) -> Prepared:
    """Read all files and build all models; find all faults.

    workload : requests to serve in place of [workload].
    readings : files already read by latency backends; None: none.
    has_met : the workload is from an earlier call for an equal experiment.

    Raises
    ------
    InputErrors
        Faults of facts, memory plan, latency model and workload; an experiment beyond the limits of memory or time.
    """
    check_memory(experiment)
    conflicts.refuse(experiment, [_known(experiment, pool) for pool in experiment.all_pools()])
    readings = readings or Readings()
    workload, *built, mover, hand_over, encode = collect_faults(
        lambda: requests_of(experiment) if workload is None else workload,
        *[partial(_of_pool, experiment, pool, partial(_pool, pool, readings, experiment.cluster))
          for pool in experiment.all_pools()],
        lambda: _mover(experiment), lambda: _hand_over(experiment),
        lambda: encode_plan(experiment, lambda pool: pool.model and _deployment(pool, None)))
    workload = workload if has_met else meet(experiment, workload)
    check_time(experiment, workload)
    sites, pools = tuple(site for site, _ in built), tuple(pool for _, pool in built)
    shifts = tuple(_of_pool(experiment, pool, partial(
        expert_shift, experiment, pool, site, partial(latency_model, pool, site, readings)))
                   for pool, site in zip(experiment.all_pools(), sites, strict=True))
    return Prepared(experiment, workload, sites, pools, mover, hand_over, shifts, encode)


def _known(experiment: Experiment, pool) -> dict[str, Callable]:
    """Return functions that return the facts of a pool's model on which conflicts depend."""
    def layer_groups():
        return _layer_groups(pool, _group_rules(pool.engine), _longest_text(pool))

    return {name: partial(_of_pool, experiment, pool, find) for name, find in (
        ("in_lock_step", partial(is_in_lock_step, pool)), ("layer_groups", layer_groups))}


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

    experiment, enough, last_ns = prepared.experiment, ENOUGH, {}
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
        prepared = prepare(experiment, requests_of(experiment, enough), readings)
    return prepared


def requests_of(experiment: Experiment, enough: Enough = ENOUGH, alike: Iterable[Experiment] = ()) -> Workload:
    """Read or draw the requests of an experiment.

    enough : as in `simulator.workload.load.load`.
    alike : other experiments that will serve these requests: their max_model_len also limits the requests.

    Raises
    ------
    InputErrors
        Faults of [workload], or of a max_model_len that limits its requests.
    """
    def longest_text():
        return min(_longest_text(pool) for each in (experiment, *alike) for pool in each.all_pools())

    return load_workload(experiment.workload, experiment.seed, enough, longest_text)


def rows_to_send(experiment: Experiment, plays_per_slot: int) -> Workload:
    """Return the requests that a run would simulate, to be sent to a real server.

    plays_per_slot : plays to draw for a closed loop bounded only by its end; a fast server uses more of them.

    Raises
    ------
    InputErrors
        As `requests_of`; requests that the engines of the experiment refuse.
    """
    return meet(experiment, requests_of(experiment, Enough(plays_per_slot)))


def vocabulary_of(experiment: Experiment) -> int | None:
    """Return the smallest vocabulary of the named models; None: no model is named."""
    return min((model_of(pool.model).vocab_size for pool in experiment.all_pools() if pool.model is not None),
               default=None)


def live_source(workload: Workload):
    """Return a simulator.engine.sources.live.Live, for an external client."""
    from simulator.engine.sources.live import Live  # not needed by a run

    return Live(workload)


def build(prepared: Prepared, sink, monitor=None, threads: int = 1, serves: tuple[int, int] | None = None):
    """Return the Cluster of an experiment, to be run once.

    sink : receives rows while the cluster runs; its attributes `wants_iterations` etc. select the tables.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    threads : maximum threads to simulate independent replicas.
    serves : first and last replica to simulate, as in `ClusterPlan`; None: all.
    """
    experiment, upkeep = prepared.experiment, _upkeep(prepared.experiment)
    plan = ClusterPlan(
        prepared.pools, _front(experiment), threads=threads, serves=serves, hand_over=prepared.hand_over,
        encode=prepared.encode, seed=experiment.seed, give_up_ns=round(experiment.cluster.give_up_after_s * 1e9),
        give_up_failing_ns=round(experiment.cluster.give_up_failing_after_s * 1e9),
        horizon_ns=None if math.isinf(experiment.horizon_s) else round(experiment.horizon_s * 1e9),
        keeps_journeys=_has_a_gate(experiment.cluster) or bool(upkeep + prepared.mover),
        keeps_legs=bool(upkeep + prepared.mover),
        tracks_identity=True if any(failure.kind == "link" for failure in experiment.failures) else None,
        adds_up=experiment.output.vidur_csv, moves_requests=experiment.cluster.rescheduling is not None,
        tracer=_tracer(experiment, sink),
        operations=_sampler(experiment, sink) + prepared.mover + upkeep + _expert_shifts(prepared.shifts))
    recorder = Recorder(sink, sink.wants_iterations, sink.wants_tokens)
    return build_cluster(prepared.workload, plan, Hooks(recorder, monitor))


def _pool(pool, readings: Readings, cluster) -> tuple[Site, Pool]:
    """Return the Site of a pool, and the pool as the engine takes it."""
    rules, site, engine, topology = lock_step(pool), survey(pool), pool.engine, pool.topology
    model = latency_model(pool, site, readings)
    gpus = topology.tensor_parallel * topology.pipeline_parallel * topology.prefill_context_parallel
    ranks = topology.data_parallel
    per_node = max(load_node(topology.node).num_accelerators // gpus, 1) if topology.node else 1
    return site, Pool(
        scheduler=registry.load("scheduler", engine.scheduler), parameters=engine.parameters, latency=model,
        num_gpu_blocks=site.num_gpu_blocks, block_size=block_tokens(pool, site.layer_groups),
        max_model_len=site.max_model_len, enable_prefix_caching=engine.enable_prefix_caching,
        fast_forward=engine.fast_forward, host=host_times(pool, model), tier=_tier(pool, site, cluster), name=pool.name,
        replicas=num_replicas(pool) * ranks, max_replicas=pool.max_replicas and pool.max_replicas * ranks, ranks=ranks,
        ranks_per_choice=ranks_per_choice(pool, per_node), lock_step=rules,
        model=pool.serves, role=pool.role, nodes_per_unit=pool.nodes_per_unit,
        cost_per_hour=pool.cost_per_hour / ranks, accelerators=gpus, layer_groups=site.layer_groups,
        replicas_per_node=per_node, behind_server=True,
        notes=kernel_notes(pool, site.deployment) + _hit_notes(pool, site.layer_groups))


def _hit_notes(pool, layers: LayerGroups | None) -> tuple[str, ...]:
    """Return what a reader of the predictions has to know of hits in the prefix cache."""
    if layers is None or not pool.engine.enable_prefix_caching:
        return ()
    return tuple(layers.hit_notes(pool.kv_tiers is not None or pool.role != "both"))


def _tier(pool, site: Site, cluster):
    """Return a factory of the KV tier of a replica; None: the pool has no tier."""
    if pool.kv_tiers is None:
        return None
    from simulator.kv.tiers.protocols.base import TierSite  # imported only when needed

    engine, parameters = pool.engine, pool.kv_tiers.parameters
    protocol = registry.load("kv_tier", pool.kv_tiers.protocol)
    eviction = getattr(parameters, "eviction_policy", None)
    tier_site = TierSite(engine.parameters, engine.block_size, site.num_gpu_blocks, pool.topology.tensor_parallel,
                         _host_kv(pool, site), site.layer_groups,
                         eviction and registry.load("kv_eviction", eviction), engine.scheduler)
    faults = [f"kv_tiers.{key}: {message}" for key, message in protocol.faults(parameters, tier_site)]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return protocol.maker(parameters, tier_site)


def _host_kv(pool, site: Site):
    """Return the layout of a pool's KV blocks for its hosts; None without a deployment."""
    from simulator.domain.host_kv import host_kv, host_kv_of_groups  # imported only when needed

    if site.deployment is None:
        return None
    if site.layer_groups is None:
        return host_kv(site.deployment, pool.engine.block_size)
    rules = _group_rules(pool.engine)
    if rules.given:
        return None
    return host_kv_of_groups(site.deployment, plan_groups(
        site.deployment, pool.engine.block_size, site.max_model_len, rules))


def _front(experiment: Experiment, routing=None) -> GatewayPlan:
    """Return the plan of the gateway; `routing` : of one leg, instead of [cluster.routing]."""
    cluster = experiment.cluster
    routing, admission = routing or cluster.routing, cluster.admission
    return GatewayPlan(
        router=registry.load("router", routing.policy), router_parameters=routing.parameters,
        scorers=tuple((registry.load("scorer", each.name), each.weight, each.parameters) for each in routing.scorers),
        admission=None if admission.policy == "always" else registry.load("admission", admission.policy),
        admission_parameters=admission.parameters,
        queue=None if cluster.gateway_queue is None else _gateway_queue(), queue_parameters=cluster.gateway_queue,
        classes=by_name(experiment.slo.classes), make=_make,
        snapshot_interval_ns=round(routing.snapshot_refresh_interval_s * 1e9),
        cache_delay_ns=round(routing.cache_signal_delay_s * 1e9),
        admission_latency_ns=round(admission.latency_s * 1e9), routing_latency_ns=round(routing.latency_s * 1e9),
        retry_ns=round(cluster.routing.retry_interval_s * 1e9),
        patience_ns=round(cluster.routing.retry_timeout_s * 1e9), ranks=rank_front(experiment))


def _gateway_queue():
    from simulator.admission.gateway_queue import GatewayQueue

    return GatewayQueue


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


def _mover(experiment: Experiment) -> tuple:
    """Return the operation that migrates requests between replicas, in a tuple; empty without migration."""
    moving = experiment.cluster.rescheduling
    if moving is None:
        return ()
    from simulator.engine.operations.migration import Migration
    from simulator.engine.operations.move_plan import MovePlan

    plan = MovePlan(
        tuple(_of_pool(experiment, pool, partial(_port, moving, pool)) for pool in experiment.all_pools()),
        mode=moving.mode, max_in=moving.max_migrations_in, max_out=moving.max_migrations_out,
        latency_ns=round(moving.latency_s * 1e9), max_stages=moving.max_stages,
        last_stage_blocks=moving.last_stage_blocks, rescheduler=registry.load("rescheduler", moving.policy),
        parameters=moving.parameters, interval_ns=moving.interval_s and round(moving.interval_s * 1e9))
    return (lambda fleet, gateways, cluster: Migration(fleet, gateways, plan, cluster.seed),)


def _hand_over(experiment: Experiment):
    """Return the plan of KV transfer between prefill and decode pools; None without [kv_transfer]."""
    if experiment.kv_transfer is None:
        return None
    from simulator.engine.hand_over.settings import hand_over_plan

    pools, chosen = experiment.all_pools(), experiment.cluster.disaggregation
    deployments = [_of_pool(experiment, pool, partial(deployment_of, pool)) for pool in pools]
    fronts = [_front(experiment, chosen and getattr(chosen, leg)) for leg in ("prefill", "decode")]
    apart = {pool.serves for pool in pools if pool.role != "both"}
    block_bytes = collect_faults(*[
        partial(_block_bytes, experiment.kv_transfer, pool, pool.serves in apart) for pool in pools])
    either = does_either_leg(experiment.cluster)
    made = hand_over_plan(
        experiment.kv_transfer, [("both" if either else pool.role, pool.serves) for pool in pools], deployments, fronts,
        chosen and (registry.load("decider", chosen.decider), chosen.parameters),
        chosen is None or chosen.stage_order == "decode_first", block_bytes)
    return replace(made, either_leg=either)


def _block_bytes(moving, pool, is_apart: bool) -> tuple[float, ...] | None:
    """Return the bytes of a transferred block of each layer group; None: no transfer, or no layer groups."""
    if not is_apart:
        return None
    rules, max_model_len = _group_rules(pool.engine), _longest_text(pool)
    layers = _layer_groups(pool, rules, max_model_len)
    if layers is None:
        return None
    if rules.given and moving.kv_bytes_per_token is None:
        raise InputErrors([KeyFault("kv_transfer.kv_bytes_per_token: missing; expected a number, since "
                                    "engine.kv_cache_groups are not those of the model")])
    if moving.kv_bytes_per_token is not None:
        return tuple(moving.kv_bytes_per_token / len(layers.groups) * group.block_size for group in layers.groups)
    deployment = _deployment(pool, None)
    return plan_groups(deployment, pool.engine.block_size, max_model_len, rules).moved_bytes(deployment)


def _port(moving, pool):
    """Return the links of the replicas of a pool."""
    from simulator.engine.operations.move_plan import Port

    deployment = deployment_of(pool)
    link = deployment and kv_link(deployment)
    token_bytes = moving.kv_bytes_per_token or (link.bytes_per_token if link else 0.0)
    outer = (moving.bandwidth_gb_per_s or 0.0) * 1e9 or (link.scaleout_bytes_per_s if link else 0.0)
    inner = 0.0 if moving.bandwidth_gb_per_s or not link else link.scaleup_bytes_per_s
    faults = []
    if moving.mode != "recompute" and token_bytes == 0.0:
        faults.append("cluster.rescheduling.kv_bytes_per_token: missing; expected a number, or [model] and [hardware]")
    if moving.mode != "recompute" and outer == 0.0:
        faults.append("cluster.rescheduling.bandwidth_gb_per_s: missing; expected a number, or hardware whose network "
                      "is known")
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return Port(token_bytes * pool.engine.block_size, inner, outer, link.replicas_per_domain if link else 1)


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


def _make(kind: str, section, context):
    """Return the policy that a nested table chooses."""
    return registry.load(kind, getattr(section, registry.KINDS[kind].key))(section.parameters, context)


def _has_a_gate(cluster) -> bool:
    """Return whether the gateway may delay or reject requests before they reach a replica."""
    return (cluster.admission.policy != "always" or cluster.gateway_queue is not None
            or max(cluster.admission.latency_s, cluster.routing.latency_s, cluster.routing.retry_timeout_s) > 0)


def _of_pool(experiment: Experiment, pool, work):
    """Return the result of `work`; its faults are reported with the name of the pool."""
    try:
        return work()
    except InputErrors as errors:
        if not experiment.pools:
            raise
        prefix = f"pools.{pool.name}."
        raise InputErrors([KeyFault(prefix + fault) if isinstance(fault, KeyFault) else fault
                           for fault in errors.faults]) from None


def _expert_shifts(shifts: tuple) -> tuple:
    """Return the operation that changes the load of experts, in a tuple; empty if the load is constant."""
    if not any(shifts):
        return ()
    from simulator.engine.operations.expert_shifts import ExpertShifts

    return (partial(ExpertShifts, shifts=shifts),)


def deployment_of(experiment: Experiment) -> Deployment | None:
    """Return the model laid out on its accelerators; None if none are named.

    Raises
    ------
    InputErrors
        Facts that cannot be read, a model that cannot be spread as asked.
    """
    model, hardware, topology = experiment.model, experiment.hardware, experiment.topology
    accelerator = load_accelerator(hardware.name) if hardware else None
    node = load_node_with(accelerator, topology.node, "topology.node") if topology.node else None
    if model is None or hardware is None:
        return None
    deployment = _deployment(experiment, accelerator, node)
    if deployment.experts is not None and (faults := list(expert_faults(deployment))):
        raise InputErrors([KeyFault(f"engine.experts{key}: {message}") for key, message in faults])
    return deployment


def _deployment(experiment: Experiment, accelerator: AcceleratorSpec | None,
                node: NodeSpec | None = None) -> Deployment:
    model, topology = experiment.model, experiment.topology
    parallelism = Parallelism(
        tensor_parallel=topology.tensor_parallel, pipeline_parallel=topology.pipeline_parallel,
        expert_parallel=topology.expert_parallel,
        data_parallel=topology.data_parallel if marches(experiment) else 1,
        decode_context_parallel=topology.decode_context_parallel,
        prefill_context_parallel=topology.prefill_context_parallel)
    spec = model_of(model)
    faults = [f"topology: {fault}" for fault in parallelism.faults(spec)]
    deployment = Deployment(
        model=spec, accelerator=accelerator, parallelism=parallelism, node=node,
        weight_dtype=model.dtype, kv_cache_dtype=model.kv_cache_dtype,
        gpu_memory_utilization=experiment.engine.gpu_memory_utilization or 1.0, experts=experiment.engine.experts)
    faults += [f"topology: {fault}" for fault in block_faults(deployment)]
    faults += [f"model.{fault}" for fault in deployment.format_faults()]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return deployment
