"""What pools for prefill and decode, and how KV comes from one to the other, say together."""
from collections.abc import Iterator, Sequence

from simulator import registry
from simulator.config.layers import Path
from simulator.config.words import show

Fault = tuple[Path, str]
NOBODY_ASKS = "a decode replica asks for no KV: it gets it"
WHY_NO_PIECES = (NOBODY_ASKS + " when the whole prompt has been computed",
                 "a decode replica hears of a request when its whole prompt has been computed")
WHY_ONLY_ARRIVED = ('it gives no blocks to a request whose KV is on its way: it takes kv_transfer.protocol = "simai", '
                    "where a request comes with its KV")
SECTIONS = ("kv_transfer", "cluster", "failures", "autoscaling")


def hand_over_faults(pools: Sequence, kv_transfer, cluster, failures, autoscaling) -> Iterator[Fault]:
    """Yield the faults of an experiment whose prompts may be computed apart.

    pools : of the experiment; the others are its sections, None where it has no such table.
    """
    roles = [pool.role for pool in pools]
    yield from _undivided(pools, cluster)
    if all(role == "both" for role in roles):
        yield from _without_pools(kv_transfer, cluster)
        yield from _autoscaler(autoscaling, roles)
        return
    if kv_transfer is None:
        apart = " and ".join(f'"{pool.name}"' for pool in pools if pool.role != "both")
        yield ("kv_transfer",), (f"missing table; it is needed by the role of pool {apart}: it says how KV comes from "
                                 'prefill to decode replicas, [kv_transfer] protocol = "nixl" for instance')
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
    """Return whether any replica of pools with roles may do either part."""
    return cluster.routing.policy == "llumnix" and cluster.routing.parameters.enable_adaptive_pd


def kv_of(model) -> str:
    """Return what a model's KV blocks look like goes by, in words."""
    return "none" if model is None else f"{model.name or model.config} with kv_cache_dtype {model.kv_cache_dtype}"


def _undivided(pools: Sequence, cluster) -> Iterator[Fault]:
    """Refuse whole requests at replicas that cannot do them."""
    for i, pool in enumerate(pools):
        why, name = _facts(pool).why_no_both, pool.engine.scheduler
        if why and pool.role == "both":
            yield ("pools", i, "role"), (
                f'expected "prefill" or "decode" with scheduler = "{name}", found "both": {why}')
        chosen = cluster.disaggregation
        if why and pool.role == "decode" and chosen is not None and chosen.decider != "always":
            yield ("cluster", "disaggregation", "decider"), (
                f'expected "always", found "{chosen.decider}": replicas of pool "{pool.name}" would do whole requests, '
                f'and their scheduler is "{name}": {why}')


def _facts(pool):
    """Return what the scheduler of a pool says of itself."""
    scheduler = registry.load("scheduler", pool.engine.scheduler)
    return scheduler.facts(scheduler.completed(pool.engine.parameters, pool.topology))


def _without_pools(kv_transfer, cluster) -> Iterator[Fault]:
    why = 'there is no pool with role = "prefill" or "decode"'
    if cluster.routing.policy == "split_wise":
        yield ("cluster", "routing", "policy"), (
            f'"split_wise" takes turns among the replicas for prompts and among those for what follows: {why}; '
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
                    f"expected its default, {show(usual)}, found {show(given)}: {why}, and nothing else asks for it")


def _partners(pools: Sequence) -> Iterator[Fault]:
    """Refuse pools for one part of requests whose other part nobody does."""
    for i, pool in enumerate(pools):
        others = {each.role for each in pools if each.serves == pool.serves}
        if pool.role == "prefill" and others == {"prefill"}:
            yield ("pools", i, "role"), ('"prefill" takes a pool with role = "decode" or "both" that serves the same '
                                         "requests: nobody would go on with its prompts")
        if pool.role == "decode" and others == {"decode"}:
            yield ("pools", i, "role"), ('"decode" takes a pool with role = "prefill" or "both" that serves the same '
                                         "requests: nobody would compute its prompts")


def _layouts(pools: Sequence) -> Iterator[Fault]:
    """Refuse to move KV to where it does not fit."""
    for i, one in enumerate(pools):
        for k, two in enumerate(pools[:i]):
            if one.serves != two.serves or one.role == two.role != "both":
                continue
            for key, *found in (
                    (("engine", "block_size"), one.engine.block_size, two.engine.block_size),
                    (("model",), kv_of(one.model), kv_of(two.model))):
                if found[0] != found[1]:
                    yield ("pools", i, *key), (
                        f'expected {found[1]}, as in pool "{pools[k].name}", found {found[0]}: KV blocks are moved as '
                        "they are between pools that serve the same")


def _protocol(kv_transfer) -> Iterator[Fault]:
    """Refuse what a protocol cannot do."""
    protocol, habits = kv_transfer.protocol, kv_transfer.habits
    for key, possible, why in (
            ("granularity", habits.granularities, WHY_NO_PIECES[habits.place == "asked"]),
            ("first_token", habits.first_tokens, "its decode replicas go on behind the token that comes with the KV"),
            ("volume", habits.volumes, "it sends whole prompts, whatever is there already")):
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
        idle["upstream_compat"] = "the faults that it follows are those of vidur-alibabacloud"
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
                f"expected 1, found {pool.topology.pipeline_parallel}: hand-overs are not settled with pipeline stages")


def _tiers_beside(i: int, pool) -> Iterator[Fault]:
    """Yield why the tier of the i-th pool does not go with prompts that are computed elsewhere."""
    if pool.kv_tiers is None:
        return
    why = registry.load("kv_tier", pool.kv_tiers.protocol).apart_with.get(pool.engine.scheduler)
    if why:
        yield ("pools", i, "kv_tiers"), (
            f'expected none with role = "{pool.role}" and scheduler "{pool.engine.scheduler}", found '
            f'"{pool.kv_tiers.protocol}": {why}')


def _taking_over(i: int, pool, kv_transfer) -> Iterator[Fault]:
    """Yield why the scheduler of the i-th pool cannot go on with what others have computed."""
    scheduler, facts = registry.load("scheduler", pool.engine.scheduler), _facts(pool)
    reserves = kv_transfer.habits.place == "reserved"
    if facts.takes_reserved and not reserves:
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" takes over what another replica has computed with kv_transfer.protocol = '
            f'"blis" alone, found "{kv_transfer.protocol}"')
    elif reserves and not facts.takes_reserved:
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" does not know blocks that were filled before a request comes: '
            f'kv_transfer.protocol = "{kv_transfer.protocol}" takes scheduler = "blis"')
    elif facts.why_no_tier and not reserves and not (
            facts.takes_arrived and kv_transfer.habits.place == "afterwards"):
        why = WHY_ONLY_ARRIVED if facts.takes_arrived else facts.why_no_tier
        yield ("pools", i, "engine", "scheduler"), (
            f'"{pool.engine.scheduler}" cannot take over what another replica has computed: {why}')
    else:
        for key, why in scheduler.role_faults(pool.engine.parameters, pool.role, kv_transfer.protocol):
            yield ("pools", i, "engine", key), why


def _noticing(pool, kv_transfer) -> Iterator[Fault]:
    """Yield what does not go with the instant at which KV that has come is noticed."""
    facts = _facts(pool)
    if facts.notices_when_forming:
        if kv_transfer.noticed_at is not None:
            yield ("kv_transfer", "noticed_at"), (
                f'expected none, found "{kv_transfer.noticed_at}": "{pool.engine.scheduler}", as in pool '
                f'"{pool.name}", looks each time that it chooses a batch')
    elif facts.is_async and kv_transfer.noticed_at == "end":
        yield ("kv_transfer", "noticed_at"), (
            f'expected "start", found "end": with async_scheduling, as in pool "{pool.name}", an iteration is '
            "launched before the one before it has ended, and looks then")
    elif pool.kv_tiers is not None and kv_transfer.noticed_at == "end":
        yield ("kv_transfer", "noticed_at"), (
            f'expected "start", found "end": with [kv_tiers], as in pool "{pool.name}", an iteration starts copies '
            "when it is launched, and looks then what has come")


def _decisions(cluster, pools: Sequence, kv_transfer) -> Iterator[Fault]:
    chosen, roles = cluster.disaggregation, [pool.role for pool in pools]
    apart = [pool for pool in pools if pool.role != "both" and not _facts(pool).does_whole]
    if chosen is not None and chosen.decider != "always" and apart:
        yield ("cluster", "disaggregation", "decider"), (
            f'expected "always", found "{chosen.decider}": "{apart[0].engine.scheduler}", as in pool '
            f'"{apart[0].name}", computes no prompts in decode replicas')
    if chosen is None or chosen.stage_order == "decode_first":
        return
    path = ("cluster", "disaggregation", "stage_order")
    if cluster.routing.policy == "split_wise":
        yield path, ('expected "decode_first", found "prefill_first": cluster.routing.policy = "split_wise" chooses '
                     "both replicas when a request comes")
    decider = registry.load("decider", chosen.decider)
    if getattr(decider, "needs_decode", False):
        yield path, (f'expected "decode_first", found "prefill_first": decider = "{chosen.decider}" goes by the decode '
                     "replica that a request would get")
    if kv_transfer.habits.order != "source" or kv_transfer.habits.place != "asked":
        yield path, (f'expected "decode_first", found "prefill_first": protocol = "{kv_transfer.protocol}" has the '
                     "decode replica chosen when a request comes")
    if "both" in roles:
        yield path, ('expected "decode_first", found "prefill_first": with a pool of role "both" a replica might hand '
                     "over to itself")


def _only_nixl(kv_transfer, failures, autoscaling) -> Iterator[Fault]:
    """Refuse what goes by leases where there are none."""
    if kv_transfer.protocol == "nixl":
        return
    for key in ("lease_s", "heartbeats", "failure_policy"):
        if getattr(kv_transfer, key) is not None:
            yield ("kv_transfer", key), f'leases are those of protocol = "nixl"; "{kv_transfer.protocol}" has none here'
    why = (f'what becomes of a hand-over when a replica goes is settled for protocol = "nixl"; with '
           f'"{kv_transfer.protocol}" it is not built')
    if failures:
        yield ("failures",), why
    if autoscaling is not None:
        yield ("autoscaling",), why


def _autoscaler(autoscaling, roles: Sequence[str]) -> Iterator[Fault]:
    """Refuse policies that cannot decide on pools for one part of requests, or know no others."""
    policy = autoscaling and registry.load("autoscaler", autoscaling.policy)
    why = getattr(policy, "why_no_roles", "")
    if getattr(policy, "needs_roles", False) and set(roles) != {"prefill", "decode"}:
        yield ("autoscaling", "policy"), (
            f'"{autoscaling.policy}" takes pools with role = "prefill" and role = "decode" alone, which it balances')
    if why and set(roles) - {"both"}:
        yield ("autoscaling", "policy"), (
            f'"{autoscaling.policy}" does not decide on pools for prefill and decode: {why}')


def _not_yet(cluster, roles: Sequence[str]) -> Iterator[Fault]:
    if cluster.rescheduling is not None:
        yield ("cluster", "rescheduling"), (
            "migration is not built together with pools for prefill and decode: a request on the move would leave its "
            "lease and the KV that it reads behind")
    for table, section in _routers(cluster):
        if section.policy != "llumnix":
            continue
        if "both" in roles:
            yield (*table, "policy"), (
                '"llumnix" sends a request to one replica for all of it, or to one for its prompt and one for the '
                'rest: beside these there may be no pool with role = "both"')
        if table[-1] != "prefill" and (cluster.disaggregation is None or (
                cluster.disaggregation.stage_order == "decode_first")) and _routes(cluster, table, "decode"):
            yield (*table, "policy"), (
                '"llumnix" takes [cluster.disaggregation] stage_order = "prefill_first", its separate scheduling of '
                "prefill and decode: its account must hear of a choice before the next one, and of a decode replica "
                "that is chosen beforehand it hears when the prompt has been computed")
        if table[-1] != "routing" and section.parameters.enable_adaptive_pd:
            yield (*table, "enable_adaptive_pd"), (
                "expected false, found true: it has one scheduler choose replicas for either part of a request; give "
                "it in [cluster.routing], without this table")


def _either_leg(pools: Sequence, kv_transfer, cluster, failures, autoscaling) -> Iterator[Fault]:
    """Refuse what does not go with replicas of which any may do either part of a request."""
    if not does_either_leg(cluster):
        return
    routing, chosen, because = cluster.routing.parameters, cluster.disaggregation, "enable_adaptive_pd = true"
    if routing.scheduling_policy != "slo":
        yield ("cluster", "routing", "scheduling_policy"), (
            f'expected "slo" with {because}, found "{routing.scheduling_policy}": other policies have no rule for it')
    if cluster.routing.snapshot_refresh_interval_s > 0:
        yield ("cluster", "routing", "snapshot_refresh_interval_s"), (
            f"expected 0 with {because}, found {show(cluster.routing.snapshot_refresh_interval_s)}: "
            "status_push_interval_s and status_poll_interval_s say how old its statuses are")
    for leg in ("prefill", "decode"):
        if chosen is not None and getattr(chosen, leg) is not None:
            yield ("cluster", "disaggregation", leg), (
                f"expected none with {because} of [cluster.routing]: one scheduler chooses for either part")
    if chosen is not None and chosen.decider != "always":
        yield ("cluster", "disaggregation", "decider"), (
            f'expected "always" with {because}, found "{chosen.decider}": Llumnix splits every request, also one that '
            "goes on where its prompt was computed")
    if kv_transfer.protocol != "nixl":
        yield ("kv_transfer", "protocol"), (
            f'expected "nixl" with {because}, found "{kv_transfer.protocol}": what a replica that goes on with its own '
            "prompt does is settled for that one alone")
    for path, section, why in (
            (("failures",), failures, "what becomes of what it reserves and of both parts when a replica fails"),
            (("autoscaling",), autoscaling, "which pool has too few replicas when any does either part")):
        if section:
            yield path, f"expected none with {because}: {why} is not settled"
    for i, pool in enumerate(pools):
        yield from _either_leg_of(i, pool, because)


def _either_leg_of(i: int, pool, because: str) -> Iterator[Fault]:
    if not pool.engine.enable_prefix_caching:
        yield ("pools", i, "engine", "enable_prefix_caching"), (
            f"expected true with {because}, found false: a request that goes on where its prompt was computed finds "
            "it in the prefix cache")
    ranks = pool.engine.data_parallel
    if pool.topology.data_parallel > 1 and (ranks is None or ranks.load_balancing != "external"):
        yield ("pools", i, "topology", "data_parallel"), (
            f"expected 1 with {because}, found {pool.topology.data_parallel}: Llumnix's statuses are those of engines, "
            "of which one decodes what it computed, and not of a group that chooses a rank of its own; or give "
            'engine.data_parallel.load_balancing = "external"')
    if pool.kv_tiers is not None:
        yield ("pools", i, "kv_tiers"), (
            f"expected none with {because}: a status would not tell which of the requests that wait for their host's "
            "KV are prompts")


def _routes(cluster, table: Path, leg: str) -> bool:
    """Say whether a table chooses the replicas for a part of requests."""
    own = cluster.disaggregation and getattr(cluster.disaggregation, leg)
    return table[-1] == leg or (table[-1] == "routing" and own is None)


def _routers(cluster) -> Iterator[tuple[Path, object]]:
    """Yield the tables that choose routers."""
    yield ("cluster", "routing"), cluster.routing
    for leg in ("prefill", "decode"):
        section = cluster.disaggregation and getattr(cluster.disaggregation, leg)
        if section is not None:
            yield ("cluster", "disaggregation", leg), section
