"""KV tiers beyond GPU memory, [kv_tiers]: keys, conflicts, table and summary of the levels."""
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part, Rows
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Feature, Place
from simulator.config.experiment import Section
from simulator.config.scorers import policies_of
from simulator.domain import records
from simulator.domain.columns import KV_TIERS
from simulator.results.summary_keys import below, keys_of


class KvTiers(Section, kw_only=True):
    """KV tiers beyond GPU memory, [kv_tiers], with the keys of their protocol."""

    protocol: Annotated[str, Meta(description="system that offloads KV")] = "vllm_offload"
    parameters: Annotated[Any, Meta(extra={"kind": "kv_tier"})]


class _Looker(NamedTuple):
    """Table of the first policy that looks up tiers, and the keys with which it would not; may be empty."""

    name: str
    alternative: str


def _looker(place: Place) -> _Looker | None:
    for path, kind, parameters in policies_of(place.cluster):
        if kind.sees_tiers(parameters):
            return _Looker(".".join(map(str, path)), " = ".join(kind.tier_keys) + " = 0" if kind.tier_keys else "")
    return None


def _why_no_scheduler(place: Place) -> str:
    protocol, scheduler = used.protocol_of(place), place.engine.scheduler
    if scheduler in (protocol.scheduler, *protocol.others):
        return ""
    with_these = '" and "'.join((protocol.scheduler, *protocol.others))
    why = protocol.why_not.get(scheduler)
    return f'it goes with scheduler "{with_these}"{f": {why}" if why else ""}'


def _why_unseen(place: Place) -> str:
    protocol, looker = used.protocol_of(place), _looker(place)
    why = protocol.why_unseen or protocol.unseen_with.get(place.engine.scheduler, "")
    unless = f" (unless {looker.alternative})" if looker.alternative else ""
    return why and f"{looker.name} chooses by the content of tiers{unless}, but cannot see this one: {why}"


def _why_unseen_groups(place: Place) -> str:
    return "" if place.layer_groups.is_even else (
        f"{_looker(place).name} chooses by the content of tiers: for layers with separate block tables it is known "
        "only if blocks have one size and some layers have full attention")


def _why_no_groups(place: Place) -> str:
    unknown = [group.words for group in place.layer_groups.groups if group.kind not in used.protocol_of(place).kinds]
    return unknown and (f"it is not built for layers that have a block table of their own for {unknown[0]}; "
                        '"vllm_offload" knows windows and states')


def _why_one_store(one: Place, two: Place) -> str:
    shared = sorted({*_stores(one)} & {*_stores(two)})
    return f'both share the store "{shared[0]}"' if shared else ""


def _stores(place: Place) -> list[str]:
    return used.protocol_of(place).stores(place.kv_tiers.parameters) if place.kv_tiers else []


LOOKERS = Feature("routers that look at tiers", "cluster.routing", value=_looker,
                  phrase="a router that looks at tiers")
SEEN_GROUPS = Feature("layers of several kinds, and routers that look at tiers", "engine.kv_cache_groups",
                      phrase="layers of several kinds and a router that looks at tiers",
                      value=lambda place: _looker(place) and place.layer_groups)


class Tiers(Part):
    """KV tiers of replicas, and stores that replicas share."""

    keys = {
        "kv_tiers": Annotated[KvTiers | None, Meta(description=(
            "KV tiers beyond GPU memory of each replica, or of each data-parallel rank, with the keys of their "
            "protocol; absent: none"))],
        "pools[].kv_tiers": Annotated[KvTiers | None, Meta(description="overrides keys of [kv_tiers]")]}
    conflicts = (
        Conflict(used.TIER_PROTOCOL, has.SCHEDULER, _why_no_scheduler,
                 "each protocol goes with the engine that has it"),
        Conflict(has.versions_without("has_connectors"), used.VLLM_TIERS, "it has no connectors of KV tiers"),
        Conflict(has.UNIT, used.VLLM_TIERS, "rules of tiers are not settled with hits inside blocks"),
        Conflict(has.PIPELINE, used.VLLM_TIERS, "each stage copies its own layers when a batch reaches it, and a copy "
                 "ends when all stages have reported it; that is not built"),
        Conflict(has.UNCACHED, used.KV_TIERS,
                 lambda place: used.protocol_of(place).why_cached.get(place.engine.scheduler, ""),
                 "tiers of BLIS and SGLang copy cached blocks alone"),
        Conflict(Feature("BLIS without its faults", "engine.upstream_compat", True), used.KV_TIERS,
                 lambda place: used.protocol_of(place).why_compat, "no real engine reloads blocks as BLIS does"),
        Conflict(used.MOVES, used.KV_TIERS, "the KV in a replica's tier does not follow a migrating request"),
        Conflict(used.TIER_PROTOCOL, LOOKERS, _why_unseen, "the content of some protocols cannot be seen from outside"),
        Conflict(used.TIER_PROTOCOL, has.LAYER_GROUPS, _why_no_groups, 'only "vllm_offload" is built for them'),
        Conflict(used.KV_TIERS, SEEN_GROUPS, _why_unseen_groups,
                 "content is known only if blocks have one size and some layers have full attention"),
        Agreement({"kv_tiers": lambda place: place.kv_tiers, "engine.block_size": lambda place: place.engine.block_size,
                   "model": lambda place: used.kv_of(place.model),
                   "topology.tensor_parallel": lambda place: place.topology.tensor_parallel}, _why_one_store,
                  "pools that share a store", "a store holds KV of one layout"),
        Conflict(used.KV_TIERS, has.SHARED_CONTEXT, "tiers do not support blocks with tokens on several ranks"),
        Conflict(used.KV_TIERS, has.DIVIDED_PROMPTS, "tiers do not support KV that all ranks keep"),
    )
    tables = {"kv_tiers": Rows(records.KV_TIER, "there is no [kv_tiers]")}
    summary_before = "by_slo_class"
    summary_keys = below("kv_tiers[]", {
        **{name: column for name, column in KV_TIERS.items() if name not in ("replica", "waited_ns")},
        **keys_of("s", waited_s="requests waited for loads, summed")})

    def report(self, run, cluster) -> None:
        """See Part: the levels of all tiers."""
        if found := cluster.tier_rows():
            run.tables["kv_tiers"] = table = np.zeros(len(found), records.KV_TIER)
            for i, (replica, row) in enumerate(found):
                for name, value in ({"replica": replica} | row).items():
                    table[i][name] = value

    def summary(self, run, summary: dict) -> dict:
        """Return the counters of each level, summed over replicas."""
        table = run.tables.get("kv_tiers")
        if table is None:
            return {}
        levels = [table[table["level"] == level] for level in np.unique(table["level"])]
        names = [name for name in table.dtype.names if name not in ("replica", "level", "waited_ns")]
        return {"kv_tiers": [
            {"level": int(rows["level"][0]), **{name: rows[name].sum().item() for name in names},
             "waited_s": int(rows["waited_ns"].sum()) / 1e9} for rows in levels]}
