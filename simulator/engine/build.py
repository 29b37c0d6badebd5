"""Construction of a cluster from its plan."""
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from simulator.admission.base import AdmissionContext
from simulator.domain import records
from simulator.domain.acceptance import Acceptance
from simulator.engine.accepting import grammar_drafts_of, new_acceptance
from simulator.engine.cluster import Cluster
from simulator.engine.fleet.fleet import Fleet
from simulator.engine.fleet.live_outputs import LiveOutputs
from simulator.engine.fleet.live_view import LiveView
from simulator.engine.gateway.gateway import Gateway
from simulator.engine.operations.base import Operation
from simulator.engine.operations.python_calls import PythonCalls
from simulator.engine.output.legs import LegBook
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, GatewayPlan, Hooks, Pool
from simulator.engine.ranks import router_of, tie
from simulator.engine.replica.delivery import Delivery
from simulator.engine.replica.departures import Departures
from simulator.engine.replica.rank import Rank
from simulator.engine.replica.replica import Replica
from simulator.engine.sources.chunked import Chunked
from simulator.engine.sources.chunked_loop import ChunkedLoop
from simulator.engine.sources.scripted import Scripted
from simulator.engine.sources.trace import Trace
from simulator.kv.content import Content
from simulator.routing.base import PoolLabel, RoutingContext
from simulator.scheduling.contract import KVPlan, ReplicaContext, SchedulerFacts
from simulator.signals.queue_limits import QueueLimits

REQUESTS_BETWEEN_LOOKS = 1.5        # per replica; with at least that many, lagging replicas pay off
INFER_TYPES = {"both": 0, "prefill": 1, "decode": 2}        # domain/replica_state.pxd


class Shared(msgspec.Struct, frozen=True):
    """Objects shared by all parts of one cluster.

    workload : its `requests` are written to.
    content : of its prompts.
    recorder, observer, monitor : see `Hooks`.
    departures : the requests that left replicas.
    journeys : structured array (requests,), `records.JOURNEY`; None: not kept.
    gate : Delivery through which requests leave that are at no replica; it delivers nothing, so any pool's will do.
    plan : ClusterPlan.
    horizon_ns : see `ClusterPlan`.
    legs : of requests that may stay at several replicas; None: each stays at one.
    tier_use : structured array (requests,), `records.TIER_USE`, of prefill legs, too; None: there are no KV tiers.
    encoded_tokens : int64 (requests,), embeddings that encoders compute for each, prefill legs, too; None: there are
        no encoders.
    transfers : structured array (requests,), `records.TRANSFER`; None: no KV transfer.
    outputs : LiveOutputs, output tokens of requests for policies that count them.
    stores : {name: Level}, stores of KV that several replicas share, added as tiers are built.
    """

    workload: Any
    content: Content
    recorder: Recorder
    observer: Any
    monitor: Any
    departures: Departures
    journeys: np.ndarray | None
    gate: Delivery
    plan: ClusterPlan
    horizon_ns: int | None
    legs: LegBook | None
    tier_use: np.ndarray | None
    encoded_tokens: np.ndarray | None
    transfers: np.ndarray | None
    outputs: LiveOutputs
    stores: dict


class ReplicaSetup(msgspec.Struct, frozen=True):
    """Objects shared by the replicas of one pool.

    workload : its `requests` are written to.
    recorder, observer : see `Hooks`.
    delivery : sends tokens and ends of requests to the clients.
    acceptance : of drafts; None: there are no drafts.
    is_async, heeds_arrivals : see SchedulerFacts.
    legs : see `Shared`.
    """

    workload: Any
    recorder: Recorder
    delivery: Delivery
    acceptance: Acceptance | None
    is_async: bool
    heeds_arrivals: bool
    observer: Any
    legs: LegBook | None


class PoolEntry(NamedTuple):
    """Position of a place for a replica."""

    pool: int           # index of its pool
    place: int          # its number in the pool
    replica: int        # its number in the cluster
    node: int
    unit: int


def build(workload, plan: ClusterPlan, hooks: Hooks) -> Cluster:
    """Return a cluster, ready to run the workload once.

    workload : simulator.workload.base.Workload; its `requests` are written to.
    """
    legs = plan.split.legs_of(workload, plan, gateway_of) if plan.split else workload
    departures = Departures(len(legs))
    gates = []
    for pool in plan.pools:
        gates.append(_delivery(pool, legs, hooks.recorder, departures, gates[0] if gates else None))
    shared = Shared(
        workload=workload, recorder=hooks.recorder,
        content=Content(legs, plan.prompts_return),
        observer=hooks.observer, monitor=hooks.monitor, departures=departures, gate=gates[0], plan=plan,
        horizon_ns=plan.horizon_ns, outputs=LiveOutputs(legs.requests, departures),
        journeys=_journeys(len(legs)) if plan.keeps_journeys or plan.split else None,
        legs=LegBook(len(legs)) if plan.keeps_legs or plan.split else None,
        tier_use=np.zeros(len(legs), records.TIER_USE) if any(pool.tier for pool in plan.pools) else None,
        encoded_tokens=_encoded_tokens(plan, len(legs)),
        transfers=plan.split and plan.split.new_transfers(len(workload)), stores={})
    _prepare(hooks.recorder, plan, len(legs))
    replicas, hosts = [], []
    for pool, delivery in zip(plan.pools, gates, strict=True):
        replicas += _replicas(pool, plan, shared, legs, delivery, len(replicas))
        hosts += [pool.host] * pool.places
    fleet = Fleet(replicas, hosts, legs, shared)
    _open_front_ends(fleet, plan)
    gateways = [_gateway(index, model, fleet, plan, shared, plan.front_of(model))
                for index, model in enumerate(plan.models)]
    if plan.split:
        gateways = plan.split.gateways(fleet, gateways, plan, [*_entries(plan.pools)], partial(
            _gateway, fleet=fleet, plan=plan, shared=shared))
    shared.outputs.attach(replicas)
    operations = _operations(fleet, gateways, plan)
    source = _source(workload, plan, hooks, gates[0], operations, replicas)
    coupled = (plan.coupled or not source.is_fixed or bool(shared.stores)
               or any(pool.is_in_lock_step or pool.queue_limits for pool in plan.pools))
    if coupled or operations or not all(gateway.is_blind for gateway in gateways):
        is_watched = coupled or operations or plan.tracer or hooks.observer or shared.outputs.is_requested
        fleet.couple(may_lag=not is_watched and all(
            _looks_rarely(gateway.view, plan.front, workload, len(replicas)) for gateway in gateways))
    if plan.split or not source.is_fixed:
        fleet.act_in_halves()
    return Cluster(fleet, gateways, gateway_of(workload, plan.models), operations, source, shared)


def _source(workload, plan: ClusterPlan, hooks: Hooks, gate: Delivery, operations: list[Operation], replicas: list):
    """Return the source of the requests; clients that learn of ends late notify it."""
    if hooks.source is not None:
        source = hooks.source(workload)
    elif workload.chunks is not None:
        kind = Chunked if workload.chunks.loop is None else ChunkedLoop
        source = kind(workload, hooks.recorder, replicas)
    else:
        source = Trace(workload) if workload.script is None else Scripted(workload, hooks.recorder, gate.last_tokens)
    if workload.chunks is not None:
        workload.chunks.followers += [replica.scheduler.forget_rows for replica in replicas]
        workload.chunks.taker.limits = lambda: [
            (replica.scheduler.limits(), replica.scheduler.why_dropped()) for replica in replicas]
    if plan.far_clients is not None:
        operations[-1].attach(source)
    return source


def _operations(fleet: Fleet, gateways: list[Gateway], plan: ClusterPlan) -> list[Operation]:
    """Return the operations: those in Python follow the compiled ones, as a single one; clients are last."""
    called = []
    for make in plan.operations:
        made = make(fleet, gateways, plan)
        (fleet.operations if isinstance(made, Operation) else called).append(made)
    if called:
        fleet.operations.append(PythonCalls(fleet, called))
    numbers = gateway_of(fleet.workload, plan.models)
    clients = plan.resends and plan.resends(fleet, gateways, plan, numbers)
    if plan.far_clients is not None:
        of_codes = [numbers.get(code, -1) for code in range(-1, len(fleet.workload.labels.get("model", ())))]
        clients = plan.far_clients(fleet, gateways, np.array(of_codes, np.int32), clients)
    if clients is not None:
        fleet.operations.append(clients)
    return fleet.operations


def _open_front_ends(fleet: Fleet, plan: ClusterPlan) -> None:
    """Add the processes that requests share in front of each replica, or of the ranks that it chooses among."""
    first, requests = 0, fleet.workload.requests
    visits = np.zeros(len(requests) if any(pool.queue_limits for pool in plan.pools) else 0, np.int32)
    for pool in plan.pools:
        host, ranks = pool.host, pool.ranks_per_choice
        if pool.queue_limits or host.front_end_us + host.front_end_per_prompt_token_us > 0:
            for index in range(first, first + pool.places, ranks):
                limits = QueueLimits(requests, visits, pool.queue_limits, index, ranks) if pool.queue_limits else None
                fleet.share_front_end(index, ranks, host.api_server_count or ranks, host, limits)
        first += pool.places


def _delivery(pool: Pool, workload, recorder: Recorder, departures: Departures, sibling: Delivery | None) -> Delivery:
    """Return the Delivery of a pool; `workload` : with prefill legs, if there are any."""
    longest_answers = None if workload.chunks is not None else pool.scheduler.longest_answers(
        pool.parameters, pool, workload.requests["prompt_tokens"].astype(np.int64))
    return Delivery(workload, recorder, pool.max_model_len, pool.host, departures, sibling, longest_answers)


def _encoded_tokens(plan: ClusterPlan, num_requests: int) -> np.ndarray | None:
    """Return the array that counts embeddings of each request; None: no pool encodes."""
    encodes = plan.models_with_embeddings or any(pool.scheduler.facts(pool.parameters).encodes for pool in plan.pools)
    return np.zeros(num_requests, np.int64) if encodes else None


def _prepare(recorder: Recorder, plan: ClusterPlan, num_requests: int) -> None:
    """Give the recorder each replica's rank, and have it add up execution times if the plan says so."""
    if plan.adds_up:
        recorder.add_up(num_requests)
    if any(pool.ranks > 1 for pool in plan.pools):
        recorder.number_ranks(np.concatenate([
            np.arange(pool.places, dtype=np.int32) % pool.ranks for pool in plan.pools]))


def _looks_rarely(view: LiveView, front: GatewayPlan, workload, num_replicas: int) -> bool:
    """Return whether bringing all replicas up to date at each look costs less than doing so with every event.

    A look costs each replica a turn; an arrival that need not be seen at once saves nearly one.
    """
    ages_ns = [front.cache_delay_ns] * (view.wants_caches or view.wants_tiers)
    if view.wants_counts or view.wants_blocks or view.wants_levels:
        ages_ns.append(front.snapshot_interval_ns)
    if not ages_ns or len(workload) == 0 or workload.chunks is not None:     # the times are not known yet
        return not ages_ns or len(workload) == 0
    arrivals_ns = workload.requests["arrival_ns"]
    span_ns = int(arrivals_ns.max()) - int(arrivals_ns.min())
    return min(ages_ns) > 0 and min(ages_ns) * len(workload) >= REQUESTS_BETWEEN_LOOKS * num_replicas * span_ns


def _replicas(pool: Pool, plan: ClusterPlan, shared: Shared, workload, delivery: Delivery,
              first: int) -> list[Replica]:
    """Return the replicas of a pool, numbered from `first`; `workload` : with prefill legs, if there are any."""
    make_tier, parameters = plan.split.tier_of(pool, plan, shared) if plan.split else pool.tier, pool.parameters
    facts = pool.scheduler.facts(parameters)
    setup = ReplicaSetup(
        workload=workload, recorder=shared.recorder, observer=shared.observer, delivery=delivery,
        acceptance=new_acceptance(facts, workload, plan.seed), is_async=facts.is_async,
        heeds_arrivals=facts.heeds_arrivals,
        legs=shared.legs)
    if make_tier is not None and plan.moves_requests:
        raise ValueError("requests of replicas with a KV tier cannot be moved: what their tier has does not follow")
    with_identity = True if make_tier is not None else plan.tracks_identity
    if with_identity is None:
        with_identity = _needs_identity(workload, pool, facts, plan.moves_requests or plan.resends is not None)
    memory = KVPlan(
        _usable_blocks(pool, facts), pool.block_size, shared.content, pool.enable_prefix_caching, with_identity,
        with_tables=plan.tracks_identity is not None, layer_groups=pool.layer_groups, max_model_len=pool.max_model_len,
        retention=pool.retention and pool.retention(workload), draft_modules=pool.draft_modules)
    items = pool.priced(workload.items)
    replicas, new_grammar_drafts = [], grammar_drafts_of(facts, workload, plan.seed)
    for index in range(first, first + pool.places):
        tier = make_tier and make_tier(workload)
        kv = pool.scheduler.kv_cache(parameters, msgspec.structs.replace(memory, tier=tier))
        if tier is not None:
            tier.share(shared.stores)
            tier.attach(kv, shared.content, shared.tier_use, plan.tracks_identity is True)
        context = ReplicaContext(
            kv=kv, requests=workload.requests, demands=workload.demands,
            max_model_len=pool.max_model_len, prompts_use_outputs=workload.prompts_use_outputs,
            enable_prefix_caching=pool.enable_prefix_caching,
            fast_forward=plan.fast_forward and pool.fast_forward and not plan.adds_up,
            num_stages=pool.latency.num_stages, tier=tier,
            request_ids=workload.request_ids, labels=workload.labels, seed=plan.seed, items=items,
            encoded_tokens=shared.encoded_tokens, grammar_drafts=new_grammar_drafts(),
            fetches_items=pool.model in plan.models_with_embeddings, behind_server=pool.behind_server)
        rank = Rank(index, _scheduler(pool, context), setup, (index - first) % pool.ranks)
        replicas.append(Replica(index, rank, pool.latency, setup))
    tie(replicas, pool, facts, plan)
    return replicas


def _scheduler(pool: Pool, context: ReplicaContext):
    """Return a scheduler of a pool; the compiled loop relies on the attributes checked here."""
    scheduler, name = pool.scheduler(pool.parameters, context), pool.scheduler.__name__
    if scheduler.waiting is None:
        raise TypeError(f"{name}.__init__ must set waiting, a WaitingQueue")
    if scheduler.max_running < 1 or scheduler.longest_prompt < 1:
        raise TypeError(f"{name}.__init__ must set max_running and longest_prompt to 1 or more, "
                        f"found {scheduler.max_running} and {scheduler.longest_prompt}")
    return scheduler


def _usable_blocks(pool: Pool, facts: SchedulerFacts) -> int:
    return pool.num_gpu_blocks - facts.blocks_held_back


def gateway_of(workload, models: list[str | None]) -> dict[int, int]:
    """Return the index of the served model for each code of a model label.

    Code -1: no label.
    """
    labels = [str(label) for label in workload.labels.get("model", ())]
    gateway_of = {labels.index(model): index for index, model in enumerate(models) if model in labels}
    if None in models:      # this pool serves all models without a pool of their own
        anyone = models.index(None)
        gateway_of = dict.fromkeys(range(-1, len(labels)), anyone) | gateway_of
    elif len(models) == 1:  # requests that name no model are for the only one
        gateway_of[-1] = 0
    return gateway_of


def _gateway(index: int, model: str | None, fleet: Fleet, plan: ClusterPlan, shared: Shared,
             front: GatewayPlan, router=None) -> Gateway:
    """Return a gateway for the requests of a model.

    index : of the gateway; those of decode legs follow those of each model.
    router : chooses among the replicas; None: the router of `front`.
    """
    splits = model in plan.split_models
    idle = plan.split.idle_roles(index, plan) if splits else ()
    entries = [entry for entry in _entries(plan.pools)
               if plan.pools[entry.pool].model == model and plan.pools[entry.pool].role not in idle]
    view = LiveView(len(entries), [fleet.replicas[entry.replica] for entry in entries], shared,
                    (front.snapshot_interval_ns, front.cache_delay_ns))
    for i, entry in enumerate(entries):
        account, pool = view.account_array[i], plan.pools[entry.pool]
        account["pool"], account["node"], account["unit"] = entry.pool, entry.node, entry.unit
        account["infer_type"], account["is_routable"] = INFER_TYPES[pool.role], entry.place < pool.replicas
        view.state_array["max_batched_tokens"][i] = pool.scheduler.facts(pool.parameters).max_batched_tokens
    legs = fleet.workload.requests[len(shared.workload):] if splits and index < plan.num_models else None
    context = RoutingContext(view, shared.workload, shared.content, view.block_size, plan.seed,
                             _stream(index, model, plan), front.scorers, prefill_legs=legs, filters=front.filters,
                             pools=tuple(PoolLabel(pool.name, pool.context_range) for pool in plan.pools),
                             classes=front.classes, quotas=front.quotas, outputs=shared.outputs)
    reports = None
    if router is None:
        router, reports = router_of(entries, context, fleet, plan, front)
    view.watch(shared.workload.labels)
    slots = sum(replica.scheduler.max_running for replica in view.replicas)
    first = getattr(router, "first", router)            # the router among the instances, if there are several
    gate = AdmissionContext(view, shared.workload, front.classes, slots, front.make, plan.seed,
                            f"admission {_stream(index, model, plan)}", getattr(first, "assignment", None),
                            tuple(getattr(first, "views", ())))
    admission = front.admission and front.admission(front.admission_parameters, gate)
    tracer = plan.tracer and plan.tracer(view, index)
    gateway = Gateway(index, fleet, view, (admission, _queues(front, gate), router, tracer, gate.assignment),
                      (front.admission_latency_ns, front.routing_latency_ns, front.retry_ns, front.patience_ns))
    if reports is not None:
        fleet.add_view(reports, index)
    return gateway


def _queues(front: GatewayPlan, gate: AdmissionContext) -> list:
    """Return the gateway queue of each instance of a gateway; empty: it has none."""
    if front.queue is None or not gate.views:
        return [front.queue(front.queue_parameters, gate)] if front.queue else []
    queues = []
    for i, view in enumerate(gate.views):
        stream = gate.stream if i == 0 else f"{gate.stream} of gateway {i}"
        own = msgspec.structs.replace(gate, view=view, stream=stream)
        queues.append(front.queue(front.queue_parameters, own, queues[0] if queues else None))
        view.pass_on_wants()
    return queues


def _stream(index: int, model: str | None, plan: ClusterPlan) -> str:
    """Return the name of the random stream of a router."""
    name = "routing" if index < plan.num_models else "decode routing"
    return name if plan.num_models == 1 else f"{name} {model}"


def _entries(pools: tuple[Pool, ...]) -> Iterator[PoolEntry]:
    """Yield all places with their numbers; no two pools share a node, or a unit."""
    replica = node = unit = 0
    for number, pool in enumerate(pools):
        for place in range(pool.places):
            own_node = place // pool.replicas_per_node
            yield PoolEntry(number, place, replica + place, node + own_node, unit + own_node // pool.nodes_per_unit)
        num_nodes = -(-pool.places // pool.replicas_per_node)
        replica, node = replica + pool.places, node + num_nodes
        unit += -(-num_nodes // pool.nodes_per_unit)


def _journeys(num_requests: int) -> np.ndarray:
    journeys = np.zeros(num_requests, records.JOURNEY)
    journeys["admitted_ns"] = journeys["dispatched_ns"] = records.NEVER_NS
    return journeys


def _needs_identity(workload, pool: Pool, facts: SchedulerFacts, texts_return: bool) -> bool:
    """Return whether a request could find blocks left behind by a request; if not, counts of blocks will do.

    By another request, or by itself before a preemption. No text is shared if no prompt has segments; no preemption can
    occur if as many of the longest text as may run at once fit the pool together, and requests that move do
    not hold blocks besides.

    texts_return : requests move between replicas, or are sent again.
    """
    if not pool.enable_prefix_caching or len(workload) == 0:
        return False
    if len(workload.segments) or texts_return:
        return True
    if not facts.preempts or facts.max_running is None:
        return facts.preempts
    longest = _longest_text(workload, pool.max_model_len) + facts.slack_tokens + 2
    sizes = [group.block_size for group in pool.layer_groups.groups] if pool.layer_groups else [pool.block_size]
    blocks = sum(-(-longest // size) for size in sizes)
    return min(facts.max_running, len(workload)) * blocks > _usable_blocks(pool, facts)


def _longest_text(workload, max_model_len: int) -> int:
    """Return the most tokens of a request, prompt and output; a bound for requests that are drawn later."""
    if workload.chunks is not None:
        return min(workload.chunks.longest_text, max_model_len)
    outputs = np.minimum(np.maximum(workload.outcomes["output_tokens"], 1), workload.demands["max_tokens"])
    return int(np.minimum(workload.requests["prompt_tokens"].astype(np.int64) + outputs, max_model_len).max())
