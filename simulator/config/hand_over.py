"""Contradictions between prefill pools, decode pools, and the KV transfer between them."""
from collections.abc import Iterator, Sequence

from simulator import registry
from simulator.config.layers import Path
from simulator.config.words import show

Fault = tuple[Path, str]
NOBODY_ASKS = "a decode replica does not request KV: KV is sent to it"
WHY_NO_PIECES = (NOBODY_ASKS + " when the whole prompt has been computed",
                 "a decode replica gets a request only when its whole prompt has been computed")
WHY_ONLY_ARRIVED = ('it allocates no blocks for KV in transit: expected kv_transfer.protocol = "simai", which '
                    "delivers a request together with its KV")
SECTIONS = ("kv_transfer", "cluster", "failures", "autoscaling")


def hand_over_faults(pools: Sequence, kv_transfer, cluster, failures, autoscaling) -> Iterator[Fault]:
    """Yield the faults of an experiment with prefill and decode pools.

    pools : of the experiment; the other parameters are its sections, None for an absent table.
    """
    roles = [pool.role for pool in pools]
    yield from _undivided(pools, cluster)
    if all(role == "both" for role in roles):
        yield from _without_pools(kv_transfer, cluster)
        yield from _autoscaler(autoscaling, roles)
        return
    if kv_transfer is None:
        names = " and ".join(f'"{pool.name}"' for pool in pools if pool.role != "both")
        yield ("kv_transfer",), (f"missing table; the role of pool {names} needs it for the transfer of KV from "
                                 'prefill to decode replicas: for instance [kv_transfer] protocol = "nixl"')
        return
    yield from _partners(pools)
    yield from _layouts(pools)
    yield from _protocol(kv_transfer)
    yield from _schedulers(pools, kv_transfer)
    yield from _decisions(cluster, pools, kv_transfer)
    yield from _only_nixl(kv_transfer, failures, autoscaling)
    yield from _autoscaler(autoscaling, roles)
    yield from _not_yet(cluster, roles)
    yield from _either_leg(pools, kv_transfer, cluster, failures, autoscaling)


def does_either_leg(cluster) -> bool:
    """Return whether any replica with a role may compute either part of a request."""
    return cluster.routing.policy == "llumnix" and cluster.routing.parameters.enable_adaptive_pd


def kv_of(model) -> str:
    """Return as text the facts that determine the layout of a model's KV blocks."""
    return "none" if model is None else f"{model.name or model.config} with kv_cache_dtype {model.kv_cache_dtype}"


def _undivided(pools: Sequence, cluster) -> Iterator[Fault]:
    """Refuse pools with role both if the scheduler supports prefill or decode alone."""
    for i, pool in enumerate(pools):
        why, name = _facts(pool).why_no_both, pool.engine.scheduler
        if why and pool.role == "both":
            yield ("pools", i, "role"), (
                f'expected "prefill" or "decode" with scheduler = "{name}", found "both": {why}')
        chosen = cluster.disaggregation
        if why and pool.role == "decode" and chosen is not None and chosen.decider != "always":
            yield ("cluster", "disaggregation", "decider"), (
                f'expected "always", found "{chosen.decider}": replicas of pool "{pool.name}" would serve whole '
                f'requests, and their scheduler is "{name}": {why}')


def _facts(pool):
    """Return the facts of a pool's scheduler."""
    scheduler = registry.load("scheduler", pool.engine.scheduler)
    return scheduler.facts(scheduler.completed(pool.engine.parameters, pool.topology))


def _without_pools(kv_transfer, cluster) -> Iterator[Fault]:
    why = 'there is no pool with role = "prefill" or "decode"'
    if cluster.routing.policy == "split_wise":
        yield ("cluster", "routing", "policy"), (
            f'"split_wise" takes turns among prefill replicas and among decode replicas: {why}; '
            '"round_robin" takes turns among all')
    if kv_transfer is not None:
        yield ("kv_transfer",), f"nothing would be moved: {why}"
    if cluster.disaggregation is not None:
        yield ("cluster", "disaggregation"), f"there would be nothing to decide: {why}"
    for i, composed in enumerate(getattr(cluster.routing.parameters, "infer_types", ())):
        if composed.infer_type != "neutral":
            yield ("cluster", "routing", "infer_types", i, "infer_type"), (
                f'expected "neutral", found "{composed.infer_type}": {why}')
    yield from _for_one_phase(cluster, why)


def _for_one_phase(cluster, why: str) -> Iterator[Fault]:
    for table in ("routing", "rescheduling"):
        parameters = getattr(getattr(cluster, table), "parameters", None)
        for name in getattr(parameters, "FOR_ONE_PHASE", ()):
            mode = {"mode": parameters.mode} if hasattr(parameters, "mode") else {}
            usual, given = getattr(type(parameters)(**mode), name), getattr(parameters, name)
            if given != usual:
                yield ("cluster", table, name), (
                    f"expected its default, {show(usual)}, found {show(given)}: {why}, and nothing else uses it")


def _partners(pools: Sequence) -> Iterator[Fault]:
    """Refuse a prefill or decode pool without a pool for the other part of its requests."""
    for i, pool in enumerate(pools):
        others = {each.role for each in pools if each.serves == pool.serves}
        if pool.role == "prefill" and others == {"prefill"}:
            yield ("pools", i, "role"), ('"prefill" needs a pool with role = "decode" or "both" that serves the same '
                                         "requests: no pool would continue its prompts")
        if pool.role == "decode" and others == {"decode"}:
            yield ("pools", i, "role"), ('"decode" needs a pool with role = "prefill" or "both" that serves the same '
                                         "requests: no pool would compute its prompts")


def _layouts(pools: Sequence) -> Iterator[Fault]:
    """Refuse KV transfer between pools with different block layouts."""
    for i, one in enumerate(pools):
        for k, two in enumerate(pools[:i]):
            if one.serves != two.serves or one.role == two.role != "both":
                continue
            for key, *found in (
                    (("engine", "block_size"), one.engine.block_size, two.engine.block_size),
                    (("model",), kv_of(one.model), kv_of(two.model))):
                if found[0] != found[1]:
                    yield ("pools", i, *key), (
                        f'expected {found[1]}, as in pool "{pools[k].name}", found {found[0]}: KV blocks are moved '
                        "unchanged between pools that serve the same requests")


def _protocol(kv_transfer) -> Iterator[Fault]:
    """Refuse values that a protocol does not support."""
    protocol, habits = kv_transfer.protocol, kv_transfer.habits
    for key, possible, why in (
            ("granularity", habits.granularities, WHY_NO_PIECES[habits.place == "asked"]),
            ("first_token", habits.first_tokens, "its decode replicas continue after the token sent with the KV"),
            ("volume", habits.volumes, "it sends whole prompts, also blocks that are present already")):
        given = getattr(kv_transfer, key)
        if given is not None and given not in possible:
            yield ("kv_transfer", key), (
                f'expected {" or ".join(map(show, possible))}, found "{given}": protocol = "{protocol}": {why}')
    idle = {}
    if habits.order != "source" or habits.place != "asked":
        idle["answer_hop_us"] = "no answer of a prefill replica sends a request to its decode replica"
    if habits.place != "asked":
        idle |= {"handshake_ms": NOBODY_ASKS, "notice_us": NOBODY_ASKS, "noticed_at": NOBODY_ASKS}
    if protocol != "simai":
        idle["upstream_compat"] = "it reproduces faults of vidur-alibabacloud"
    if habits.reserved_tokens < 0:
        idle["num_reserved_decode_tokens"] = (
            'decode replicas admit by their scheduler\'s own rule; SGLang\'s is "sglang"')
    for key, why in idle.items():
        if getattr(kv_transfer, key):
            yield ("kv_transfer", key), (
                f'expected none, found {show(getattr(kv_transfer, key))}: protocol = "{protocol}": {why}')


def _facts(pool):
    scheduler = registry.load("scheduler", pool.engine.scheduler)
    return scheduler.facts(scheduler.completed(pool.engine.parameters, pool.topology))


def _schedulers(pools: Sequence, kv_transfer) -> Iterator[Fault]:
    for i, pool in enumerate(pools):
        yield from _taking_over(i, pool, kv_transfer)
        yield from _noticing(pool, kv_transfer)
        if pool.kv_tiers is not None and kv_transfer.habits.why_no_tiers:
            yield ("pools", i, "kv_tiers"), (
                f'expected none with kv_transfer.protocol = "{kv_transfer.protocol}": '
                f"{kv_transfer.habits.why_no_tiers}")
        yield from _tiers_beside(i, pool)
        host = pool.latency.host
        if kv_transfer.upstream_compat and pool.role != "prefill" and (
                host.queue_base_us + host.queue_per_prompt_token_us + host.front_end_us
                + host.front_end_per_prompt_token_us > 0):
            yield ("pools", i, "latency", "host"), (
                "expected no queue_base_us, queue_per_prompt_token_us, front_end_us nor front_end_per_prompt_token_us "
                "with kv_transfer.upstream_compat = true: a request is in the queue of its decode replica when its "
                "prompt is done")
        if pool.topology.pipeline_parallel > 1:
            yield ("pools", i, "topology", "pipeline_parallel"), (
                f"expected 1, found {pool.topology.pipeline_parallel}: KV transfer with pipeline stages is not "
                "supported")


def _tiers_beside(i: int, pool) -> Iterator[Fault]:
    """Yield a fault if the KV tier of the i-th pool does not support KV transfer."""
    if pool.kv_tiers is None:
        return
    why = registry.load("kv_tier", pool.kv_tiers.protocol).refuses_disaggregated.get(pool.engine.scheduler)
    if why:
        yield ("pools", i, "kv_tiers"), (
            f'expected none with role = "{pool.role}" and scheduler "{pool.engine.scheduler}", found '
            f'"{pool.kv_tiers.protocol}": {why}')


def _taking_over(i: int, pool, kv_transfer) -> Iterator[Fault]:
    """Yield faults of the i-th pool's scheduler for prompts that were computed by another pool."""
    scheduler, facts = registry.load("scheduler", pool.engine.scheduler), _facts(pool)
    reserves = kv_transfer.habits.place == "reserved"
    if facts.takes_reserved and not reserves:
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" continues prompts of another replica only with kv_transfer.protocol = '
            f'"blis", found "{kv_transfer.protocol}"')
    elif reserves and not facts.takes_reserved:
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" does not support blocks that are filled before a request arrives: '
            f'kv_transfer.protocol = "{kv_transfer.protocol}" needs scheduler = "blis"')
    elif facts.why_no_tier and not reserves and not (
            facts.takes_arrived and kv_transfer.habits.place == "afterwards"):
        why = WHY_ONLY_ARRIVED if facts.takes_arrived else facts.why_no_tier
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" cannot take over what another replica has computed: {why}')
    else:
        for key, why in scheduler.role_faults(pool.engine.parameters, pool.role, kv_transfer.protocol):
            yield ("pools", i, "engine", key), why


def _noticing(pool, kv_transfer) -> Iterator[Fault]:
    """Yield contradictions with the instant at which the scheduler notices arrived KV."""
    facts = _facts(pool)
    if facts.notices_when_forming:
        if kv_transfer.noticed_at is not None:
            yield ("kv_transfer", "noticed_at"), (
                f'expected none, found "{kv_transfer.noticed_at}": "{pool.engine.scheduler}", as in pool '
                f'"{pool.name}", looks for KV each time that it forms a batch')
    elif facts.is_async and kv_transfer.noticed_at == "end":
        yield ("kv_transfer", "noticed_at"), (
            f'expected "start", found "end": with async_scheduling, as in pool "{pool.name}", an iteration is '
            "launched, and looks for KV, before the previous one has ended")
    elif pool.kv_tiers is not None and kv_transfer.noticed_at == "end":
        yield ("kv_transfer", "noticed_at"), (
            f'expected "start", found "end": with [kv_tiers], as in pool "{pool.name}", an iteration starts copies, '
            "and looks for KV, when it is launched")


def _decisions(cluster, pools: Sequence, kv_transfer) -> Iterator[Fault]:
    chosen, roles = cluster.disaggregation, [pool.role for pool in pools]
    one_phase = [pool for pool in pools if pool.role != "both" and not _facts(pool).does_whole]
    if chosen is not None and chosen.decider != "always" and one_phase:
        yield ("cluster", "disaggregation", "decider"), (
            f'expected "always", found "{chosen.decider}": "{one_phase[0].engine.scheduler}", as in pool '
            f'"{one_phase[0].name}", computes no prompts in decode replicas')
    if chosen is None or chosen.stage_order == "decode_first":
        return
    path = ("cluster", "disaggregation", "stage_order")
    if cluster.routing.policy == "split_wise":
        yield path, ('expected "decode_first", found "prefill_first": cluster.routing.policy = "split_wise" chooses '
                     "both replicas when a request arrives")
    decider = registry.load("decider", chosen.decider)
    if getattr(decider, "needs_decode", False):
        yield path, (f'expected "decode_first", found "prefill_first": decider = "{chosen.decider}" needs the decode '
                     "replica of a request")
    if kv_transfer.habits.order != "source" or kv_transfer.habits.place != "asked":
        yield path, (f'expected "decode_first", found "prefill_first": protocol = "{kv_transfer.protocol}" needs the '
                     "decode replica when a request arrives")
    if "both" in roles:
        yield path, ('expected "decode_first", found "prefill_first": with a pool of role "both" a replica might hand '
                     "over to itself")


def _only_nixl(kv_transfer, failures, autoscaling) -> Iterator[Fault]:
    """Refuse lease settings for a protocol without leases."""
    if kv_transfer.protocol == "nixl":
        return
    for key in ("lease_s", "heartbeats", "failure_policy"):
        if getattr(kv_transfer, key) is not None:
            yield ("kv_transfer", key), f'leases are those of protocol = "nixl"; "{kv_transfer.protocol}" has none here'
    why = (f'KV transfer from or to a replica that stops is supported for protocol = "nixl", not for '
           f'"{kv_transfer.protocol}"')
    if failures:
        yield ("failures",), why
    if autoscaling is not None:
        yield ("autoscaling",), why


def _autoscaler(autoscaling, roles: Sequence[str]) -> Iterator[Fault]:
    """Refuse autoscalers that do not support prefill and decode pools, or require them where absent."""
    policy = autoscaling and registry.load("autoscaler", autoscaling.policy)
    why = getattr(policy, "why_no_roles", "")
    if getattr(policy, "needs_roles", False) and set(roles) != {"prefill", "decode"}:
        yield ("autoscaling", "policy"), (
            f'"{autoscaling.policy}" needs pools with role = "prefill" and "decode" and no others: it balances them')
    if why and set(roles) - {"both"}:
        yield ("autoscaling", "policy"), (
            f'"{autoscaling.policy}" does not decide on pools for prefill and decode: {why}')


def _not_yet(cluster, roles: Sequence[str]) -> Iterator[Fault]:
    if cluster.rescheduling is not None:
        yield ("cluster", "rescheduling"), (
            "migration with prefill and decode pools is not supported: a migrating request would leave its lease and "
            "the KV that it reads behind")
    for table, section in _routers(cluster):
        if section.policy != "llumnix":
            continue
        if "both" in roles:
            yield (*table, "policy"), (
                '"llumnix" sends a request to one replica, or to one for its prompt and another for its output: '
                'with prefill and decode pools it supports no pool with role = "both"')
        if table[-1] != "prefill" and (cluster.disaggregation is None or (
                cluster.disaggregation.stage_order == "decode_first")) and _routes(cluster, table, "decode"):
            yield (*table, "policy"), (
                '"llumnix" needs [cluster.disaggregation] stage_order = "prefill_first", its separate scheduling of '
                "prefill and decode: its account needs each choice before the next one, but gets a decode replica "
                "that is chosen in advance only when the prompt has been computed")
        if table[-1] != "routing" and section.parameters.enable_adaptive_pd:
            yield (*table, "enable_adaptive_pd"), (
                "expected false, found true: with it one scheduler chooses the replicas for both parts of a request; "
                "give it in [cluster.routing], without this table")


def _either_leg(pools: Sequence, kv_transfer, cluster, failures, autoscaling) -> Iterator[Fault]:
    """Refuse settings that do not support replicas that may compute either part of a request."""
    if not does_either_leg(cluster):
        return
    routing, chosen, because = cluster.routing.parameters, cluster.disaggregation, "enable_adaptive_pd = true"
    if routing.scheduling_policy != "slo":
        yield ("cluster", "routing", "scheduling_policy"), (
            f'expected "slo" with {because}, found "{routing.scheduling_policy}": other policies do not support it')
    if cluster.routing.snapshot_refresh_interval_s > 0:
        yield ("cluster", "routing", "snapshot_refresh_interval_s"), (
            f"expected 0 with {because}, found {show(cluster.routing.snapshot_refresh_interval_s)}: "
            "status_push_interval_s and status_poll_interval_s set the age of its statuses")
    for leg in ("prefill", "decode"):
        if chosen is not None and getattr(chosen, leg) is not None:
            yield ("cluster", "disaggregation", leg), (
                f"expected none with {because} of [cluster.routing]: one scheduler chooses for both parts")
    if chosen is not None and chosen.decider != "always":
        yield ("cluster", "disaggregation", "decider"), (
            f'expected "always" with {because}, found "{chosen.decider}": Llumnix splits every request, also one that '
            "stays at the replica of its prompt")
    if kv_transfer.protocol != "nixl":
        yield ("kv_transfer", "protocol"), (
            f'expected "nixl" with {because}, found "{kv_transfer.protocol}": only "nixl" supports a replica that '
            "continues its own prompt")
    for path, section, why in (
            (("failures",), failures, "failures with reservations and both parts of a request at a replica"),
            (("autoscaling",), autoscaling, "scaling of pools of which any replica may compute either part")):
        if section:
            yield path, f"expected none with {because}: not supported: {why}"
    for i, pool in enumerate(pools):
        yield from _either_leg_of(i, pool, because)


def _either_leg_of(i: int, pool, because: str) -> Iterator[Fault]:
    if not pool.engine.enable_prefix_caching:
        yield ("pools", i, "engine", "enable_prefix_caching"), (
            f"expected true with {because}, found false: a request that stays at the replica of its prompt finds "
            "the prompt in the prefix cache")
    ranks = pool.engine.data_parallel
    if pool.topology.data_parallel > 1 and (ranks is None or ranks.load_balancing != "external"):
        yield ("pools", i, "topology", "data_parallel"), (
            f"expected 1 with {because}, found {pool.topology.data_parallel}: Llumnix's statuses are of single "
            "engines, and not of a group that chooses a rank itself; or give "
            'engine.data_parallel.load_balancing = "external"')
    if pool.kv_tiers is not None:
        yield ("pools", i, "kv_tiers"), (
            f"expected none with {because}: a status does not separate prompts from other requests that wait for KV "
            "of the host")


def _routes(cluster, table: Path, leg: str) -> bool:
    """Return whether a routing table chooses the replica for the part `leg` of requests."""
    own = cluster.disaggregation and getattr(cluster.disaggregation, leg)
    return table[-1] == leg or (table[-1] == "routing" and own is None)


def _routers(cluster) -> Iterator[tuple[Path, object]]:
    """Yield the tables that choose routers."""
    yield ("cluster", "routing"), cluster.routing
    for leg in ("prefill", "decode"):
        section = cluster.disaggregation and getattr(cluster.disaggregation, leg)
        if section is not None:
            yield ("cluster", "disaggregation", leg), section
