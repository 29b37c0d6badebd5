"""Conflicts of prefill and decode pools, [kv_transfer] and [cluster.disaggregation]."""
from simulator import registry
from simulator.assembly.parts import features as used
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Feature, Place, table_at, without
from simulator.config.scorers import filters_without_use, scorers_without_use

LEGS = ("prefill", "decode")
NOBODY_ASKS = "a decode replica does not request KV: KV is sent to it"
STOPS = 'KV transfer from or to a replica that stops is supported for protocol = "nixl" alone'
HOST_KEYS = {"queue": "queue_base_us", "queue per token": "queue_per_prompt_token_us", "front end": "front_end_us",
             "front end per token": "front_end_per_prompt_token_us"}


def _of_transfer(title: str, key: str, off=None) -> Feature:
    return Feature(title, f"kv_transfer.{key}", off)


def _pieces(title: str, key: str, kind: str) -> Feature:
    """Return the feature of a value of [kv_transfer] that the protocol does not have."""
    return _of_transfer(title, key, lambda place: getattr(place.kv_transfer.habits, kind))


def _why_no_pieces(place: Place) -> str:
    return ("a decode replica gets a request only when its whole prompt has been computed"
            if place.kv_transfer.habits.place == "asked" else
            NOBODY_ASKS + " when the whole prompt has been computed")


def _why_no_takeover(place: Place) -> str:
    """Return the reason why a scheduler cannot continue prompts of another pool; empty: it can."""
    facts = place.facts
    if facts.takes_reserved or (facts.takes_arrived and place.kv_transfer.habits.place == "afterwards"):
        return ""
    why = ('it allocates no blocks for KV in transit: expected kv_transfer.protocol = "simai", which delivers a '
           "request together with its KV" if facts.takes_arrived else facts.why_no_tier)
    return facts.why_no_tier and f"it cannot take over what another replica has computed: {why}"


def _why_no_whole(place: Place) -> str:
    """Return the reason why a replica of the pool cannot serve a request alone; empty: it can."""
    if place.role == "decode" and place.facts.why_no_both:
        return f"decode replicas would serve whole requests: {place.facts.why_no_both}"
    return "" if place.role == "both" or place.facts.does_whole else "it computes no prompts in decode replicas"


def _move_blocks(one: Place, two: Place) -> str:
    if one.serves != two.serves or one.role == two.role != "both" or not used.moves_of(one):
        return ""
    return "KV blocks are moved unchanged between pools that serve the same requests"


def _chooses_decode(place: Place, table: str) -> bool:
    """Return whether a routing table chooses the replica for the output of requests."""
    own = place.cluster.disaggregation and place.cluster.disaggregation.decode
    return table.endswith("decode") or (table.endswith("routing") and own is None)


def _hears_late(place: Place, section) -> bool:
    """Return whether Llumnix's account has a decode replica that is chosen early only when the prompt is computed."""
    return section.parameters.enable_adaptive_pd or used.moves_of(place).habits.place != "asked"


def _llumnix(table: str, *, chooses_decode: bool = False) -> Feature:
    """Return the feature of Llumnix's router in a table."""
    def policy(place: Place) -> str | None:
        section = table_at(place, table)
        is_used = section is not None and section.policy == "llumnix" and used.moves_of(place) is not None
        return is_used and "llumnix" if not chooses_decode else (
            is_used and _chooses_decode(place, table) and _hears_late(place, section) and "llumnix")

    return Feature(f"Llumnix's router in [{table}]", f"{table}.policy", value=policy)


def _whole_only(table: str) -> Conflict:
    """Return the row of routers in a table that do not choose replicas for one leg of a request."""
    return Conflict(Feature(f"routers of whole requests in [{table}]", f"{table}.policy", value=lambda place: (
        (chosen := table_at(place, table)) and ":" not in chosen.policy
        and registry.load("router", chosen.policy).why_no_legs and chosen.policy)), has.ROLES,
        lambda place: registry.load("router", table_at(place, table).policy).why_no_legs,
        "they learn from the ends of whole requests")


def _routes_prompts(place: Place) -> bool:
    """Return whether [cluster.routing] counts output blocks, and chooses replicas for prompts alone."""
    own = place.cluster.disaggregation and place.cluster.disaggregation.decode
    return own is not None and getattr(place.cluster.routing.parameters, "output_blocks", False)


ROUTERS = ("cluster.routing", *(f"cluster.disaggregation.{leg}" for leg in LEGS))
RULE = 'decode replicas admit by their scheduler\'s own rule; SGLang\'s is "sglang"'
AT_DECODE = "a request is in the queue of its decode replica when its prompt is done"
LAUNCHED = "an iteration is launched, and looks for KV, before the previous one has ended"
COPIES = "an iteration starts copies, and looks for KV, when it is launched"
NOT_SIMAI = used.protocols('protocols of KV transfer but "simai"', lambda habits: True)._replace(off="simai")
COMPAT = _of_transfer("faults of vidur-alibabacloud", "upstream_compat", False)
DECODE_FIRST = Feature("decode replicas chosen before the prompt", "cluster.disaggregation.stage_order",
                       "prefill_first", value=lambda place: getattr(
                           place.cluster.disaggregation, "stage_order", "decode_first"))
SGLANG = Feature('scheduler "sglang"', "engine.scheduler", value=lambda place: (
    place.engine.scheduler == "sglang" and "sglang"))
WHY_NO_BOTH = "a server of SGLang computes prompts for others, or continues theirs"
NEVER_BOTH = "prompts and decodes are never in the same replica"
NO_ANSWER = "no answer of a prefill replica sends a request to its decode replica"

OF_PROTOCOLS = (
    Conflict(_pieces("pieces of a prompt in KV transfer", "granularity", "granularities"), used.PROTOCOL,
             _why_no_pieces, "only some protocols move pieces of a prompt"),
    Conflict(_pieces("first tokens of the other replica", "first_token", "first_tokens"), used.PROTOCOL,
             "its decode replicas continue after the token sent with the KV"),
    Conflict(_pieces("KV that is missing alone", "volume", "volumes"), used.PROTOCOL,
             "it sends whole prompts, also blocks that are present already"),
    Conflict(_of_transfer("a hop of the answer", "answer_hop_us"), used.NOT_READ, NO_ANSWER),
    Conflict(_of_transfer("handshakes", "handshake_ms", 0.0), used.UNASKED, NOBODY_ASKS),
    Conflict(_of_transfer("delays of notices", "notice_us", 0.0), used.UNASKED, NOBODY_ASKS),
    Conflict(used.NOTICED_AT, used.UNASKED, NOBODY_ASKS),
    Conflict(COMPAT, NOT_SIMAI, "it reproduces faults of vidur-alibabacloud"),
    Conflict(_of_transfer("reserved tokens of decode replicas", "num_reserved_decode_tokens"),
             used.protocols("protocols of KV transfer without such tokens", lambda habits: habits.reserved_tokens < 0),
             RULE),
    *(Conflict(_of_transfer("leases", key), used.NOT_NIXL, "it has no leases")
      for key in ("lease_s", "heartbeats", "failure_policy")),
    Conflict(used.FAILURES, used.NOT_NIXL, STOPS),
    Conflict(used.AUTOSCALING, used.NOT_NIXL, STOPS),
    Conflict(used.KV_TIERS, used.PROTOCOL, lambda place: place.kv_transfer.habits.why_no_tiers,
             '"blis" and "simai" have no KV tiers beside them'),
    *(Conflict(Feature(f"host time of the {title}", f"latency.host.{key}", 0.0), COMPAT, lambda place: (
        "" if place.role == "prefill" else AT_DECODE), AT_DECODE) for title, key in HOST_KEYS.items()),
)
OF_SCHEDULERS = (
    Conflict(used.DECIDER, has.SCHEDULER, _why_no_whole,
             'decode replicas of "split_wise" and "sglang" compute no prompts'),
    Conflict(Feature("schedulers of reserved blocks", "engine.scheduler", value=lambda place: (
        place.facts.takes_reserved and place.engine.scheduler)), used.UNRESERVING,
        'it continues prompts of another replica only with kv_transfer.protocol = "blis"'),
    Conflict(Feature("schedulers without reserved blocks", "engine.scheduler", "blis", value=lambda place: (
        not place.facts.takes_reserved and place.engine.scheduler)), used.RESERVING,
        "it does not support blocks that are filled before a request arrives"),
    Conflict(SGLANG, used.protocols('protocols of KV transfer but "sglang"', lambda habits: True)._replace(
        off="sglang"), "its decode replicas give pages to a request before its prompt is computed"),
    Conflict(has.WHOLE_POOL, SGLANG, lambda place: used.moves_of(place) and WHY_NO_BOTH, WHY_NO_BOTH),
    *(Conflict(Feature(f"{title} of SGLang", f"engine.{key}", (False, 0)), has.ROLES, why) for title, key, why in (
        ("bounds of the queue", "max_queued_requests", "SGLang bounds the queue of servers for whole requests alone"),
        ("mixed chunks", "enable_mixed_chunk", NEVER_BOTH), ("turns", "prefill_decode_interval", NEVER_BOTH))),
    Conflict(has.RECV_INTERVAL, has.ROLES, "the weights of batches of such servers are not built"),
    Conflict(has.SCHEDULER, used.UNRESERVING, _why_no_takeover, "an engine has no KV transfer, or another one"),
    Conflict(has.PIPELINE, has.ROLES, "KV transfer with pipeline stages is not supported"),
    Conflict(used.KV_TIERS, has.ROLES,
             lambda place: used.protocol_of(place).refuses_disaggregated.get(place.engine.scheduler, ""),
             "HiCache of SGLang with disaggregated prefill is not built"),
    Conflict(used.NOTICED_AT, Feature("schedulers that look for KV when they form a batch", "engine.scheduler",
                                      value=lambda place: place.facts.notices_when_forming and place.engine.scheduler),
             "it looks for KV each time that it forms a batch"),
    *(Conflict(used.NOTICED_AT_END, other, lambda place, why=why: "" if place.facts.notices_when_forming else why, why)
      for other, why in ((has.ASYNC, LAUNCHED), (used.KV_TIERS, COPIES))),
)
OF_ROUTING = (
    Conflict(used.KV_TRANSFER, without(has.ROLES), "nothing would be moved"),
    Conflict(used.DISAGGREGATION, without(has.ROLES), "there would be nothing to decide"),
    *(Conflict(feature, has.ROLES, "prefill replicas generate no outputs") for feature in (
        Feature("output blocks of prefill replicas", "cluster.disaggregation.prefill.output_blocks", False),
        Feature("output blocks of a router for prompts", "cluster.routing.output_blocks", False,
                value=_routes_prompts))),
    Conflict(used.PREFILL_FIRST, has.SPLIT_WISE, "it chooses both replicas when a request arrives"),
    Conflict(used.PREFILL_FIRST, Feature("deciders that look at decode replicas", "cluster.disaggregation.decider",
                                         value=lambda place: (chosen := place.cluster.disaggregation) and getattr(
                                             registry.load("decider", chosen.decider), "needs_decode", False) and
                                         chosen.decider), "it needs the decode replica of a request"),
    Conflict(used.PREFILL_FIRST, used.NOT_READ, "it needs the decode replica when a request arrives"),
    Conflict(used.PREFILL_FIRST, has.WHOLE_BESIDE, "a replica might hand over to itself"),
    *(Conflict(_llumnix(table), has.WHOLE_BESIDE, "it sends a request to one replica, or to one for its prompt and "
               "another for its output") for table in ROUTERS),
    *(Conflict(_llumnix(table, chooses_decode=True), DECODE_FIRST,
               "its account needs each choice before the next one, but gets a decode replica that is chosen in advance "
               "only when the prompt has been computed") for table in ROUTERS if not table.endswith("prefill")),
    *(Conflict(Feature(f"adaptive choice of Llumnix in [{table}]", f"{table}.enable_adaptive_pd", False), has.ROLES,
               "with it one scheduler chooses the replicas for both parts of a request; give it in [cluster.routing], "
               "without this table") for table in ROUTERS[1:]),
)
OF_ADAPTIVE = (
    (Feature("other policies of Llumnix than slo", "cluster.routing.scheduling_policy", "slo"),
     "other policies do not support it"),
    (Feature("an age of the router's view", "cluster.routing.snapshot_refresh_interval_s", 0.0),
     "status_push_interval_s and status_poll_interval_s set the age of its statuses"),
    *((Feature(f"a router for {leg}", f"cluster.disaggregation.{leg}"), "one scheduler chooses for both parts")
      for leg in LEGS),
    (used.DECIDER, "Llumnix splits every request, also one that stays at the replica of its prompt"),
    (used.NOT_NIXL, 'only "nixl" supports a replica that continues its own prompt'),
    (used.FAILURES, "failures with reservations and both parts of a request at a replica are not supported"),
    (used.AUTOSCALING, "scaling of pools of which any replica may compute either part is not supported"),
    (has.UNCACHED, "a request that stays at the replica of its prompt finds the prompt in the prefix cache"),
    (Feature("data-parallel ranks with a router of their own", "topology.data_parallel", 1, value=lambda place: (
        used.ranks_of(place).load_balancing != "external" and place.topology.data_parallel)),
     "Llumnix's statuses are of single engines, and not of a group that chooses a rank itself; or give "
     'engine.data_parallel.load_balancing = "external"'),
    (used.KV_TIERS, "a status does not separate prompts from other requests that wait for KV of the host"),
)
OF_LAYER_GROUPS = (
    *(Conflict(_of_transfer(title, key, built)._replace(value=lambda place, key=key, kind=kind: (
        used.moves_of(place) and place.kv_transfer.chosen(key, kind))), used.MOVED_GROUPS, why)
      for title, key, kind, built, why in (
          ("pieces of a prompt in KV transfer", "granularity", "granularities", "prompt", "nothing else is built"),
          ("first tokens of the prefill replica", "first_token", "first_tokens", "recompute", "nothing else is built"),
          ("KV transfer of full prompts", "volume", "volumes", "missing",
           "of layers with windows the decode replica has no blocks for all of a prompt"))),
    Conflict(used.KV_TIERS, used.MOVED_GROUPS,
             "KV transfer together with a KV tier is not built for layers of several kinds"),
)
CONFLICTS = (
    *OF_ROUTING, *(scorers_without_use(table) for table in ROUTERS[1:]),
    *(filters_without_use(table) for table in ROUTERS[1:]), *map(_whole_only, ROUTERS), *OF_PROTOCOLS, *OF_SCHEDULERS,
    *(Conflict(feature, used.ADAPTIVE, why) for feature, why in OF_ADAPTIVE), *OF_LAYER_GROUPS,
    *(Conflict(used.KV_TRANSFER, ranks, used.UNMOVED_RANKS) for ranks in (has.SHARED_CONTEXT, has.DIVIDED_PROMPTS)),
    Agreement(used.BLOCKS, _move_blocks, "pools between which KV is transferred", "blocks are moved unchanged"))
