"""Prefill and decode pools, [kv_transfer] and [cluster.disaggregation]: keys, plan of KV transfer."""
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.gateway import front_of
from simulator.assembly.parts.base import Fault, Part
from simulator.assembly.parts.disaggregation_conflicts import CONFLICTS, LEGS
from simulator.assembly.site import Site
from simulator.assembly.transfer_notes import order_notes, rate_notes
from simulator.config.experiment import LegRouting, Section
from simulator.domain.kv_transfer import KvTransfer
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.results.hand_over import columns_of, metrics_of, transfer_events
from simulator.results.measured import measured_part
from simulator.results.summary_keys import DISTRIBUTION, keys_of


class Disaggregation(Section, kw_only=True):
    """Choice of the requests to split, [cluster.disaggregation], with decider keys."""

    decider: Annotated[str, Meta(description=(
        "policy that decides whether a request is split between a prefill and a decode replica; otherwise a decode "
        "replica computes all of it"))] = "always"
    stage_order: Annotated[Literal["decode_first", "prefill_first"], Meta(description=(
        "decode_first: the decode replica is chosen when a request arrives, before the decider is called; "
        "prefill_first: it is chosen when the prompt has been computed. Protocols that send a request to its prefill "
        "replica first count it at the decode replica once the prompt is computed, or from the choice on, if the "
        "router is one that counts what it promises (weighted, dynamo, llumnix, cache_aware, prefix_hash, lmetric, "
        "manual; not with blis and simai); a front end of several ranks chooses its rank when the prompt is "
        "computed"))] = "decode_first"
    prefill: Annotated[LegRouting | None, Meta(description=(
        "router of prompts to prefill replicas, with its keys; absent: [cluster.routing], whose retry keys always "
        "apply"))] = None
    decode: Annotated[LegRouting | None, Meta(description=(
        "router of output after the prompt, and of unsplit requests, to decode replicas, with its keys; absent: "
        "[cluster.routing]"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "decider"})]


class PrefillDecode(Part):
    """Pools for prompts and pools for output, with KV transfer between their replicas."""

    keys = {
        "kv_transfer": Annotated[KvTransfer | None, Meta(description=(
            "transfer of KV from prefill to decode pools; required with such pools"))],
        "cluster.disaggregation": Annotated[Disaggregation | None, Meta(description=(
            "choice of the requests to split between prefill and decode pools; absent: all are split"))],
        "topology.pd_node_ratio": Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description=(
            "SimAI's key, instead of [[pools]]: share of the replicas, rounded down, that form a pool with role = "
            "\"prefill\"; the other replicas form a pool with role = \"decode\"; 1: every replica does both"))]}
    conflicts = CONFLICTS
    summary_before = "itl_ms"
    summary_keys = {
        **keys_of(
            kv_transfer__count="hand-overs that ended", kv_transfer__failed="hand-overs that failed",
            kv_transfer__cancelled="hand-overs of requests that were gone", kv_transfer__expired="leases that ran out",
            kv_transfer__local="requests that one replica did whole",
            kv_transfer__peak_concurrent="hand-overs under way at once, at most",
            kv_transfer__mean_depth_at_start="under way when one begins, itself included, on average"),
        **keys_of("B", kv_transfer__bytes="moved"),
        **keys_of("ms", kv_transfer__wait_ms=DISTRIBUTION + "prompt computed to start of the hand-over",
                  kv_transfer__duration_ms=DISTRIBUTION + "start of the hand-over to its end")}
    transfer, notes = None, MappingProxyType({})

    @staticmethod
    def unfold(layers) -> tuple:
        """Make two pools from `topology.pd_node_ratio`, if both get replicas.

        Otherwise the table is unchanged: `faults` refuses the key.
        """
        topology = layers.data.get("topology")
        if "pools" in layers.data or not isinstance(topology, dict):
            return ()
        replicas, ratio = topology.get("replicas", 1), topology.get("pd_node_ratio")
        if not (isinstance(replicas, int) and isinstance(ratio, float) and 0 < ratio < 1):
            return ()
        moves = layers.data.get("kv_transfer")
        prefill = prefill_replicas(replicas, ratio, isinstance(moves, dict) and moves.get("upstream_compat") is True)
        if 0 < prefill < replicas:
            del topology["pd_node_ratio"]
            layers.data["pools"] = [{"name": role, "role": role, "replicas": count}
                                    for role, count in (("prefill", prefill), ("decode", replicas - prefill))]
        return ()

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        """See Part: pools without their counterpart, and a share that gives no pools."""
        pools, moving, topology = sections["pools"], sections["kv_transfer"], sections["topology"]
        if topology is not missing:
            yield from _shares(topology, pools, moving)
        if missing not in (moving, sections["cluster"]):
            yield from _partners(pools, moving)

    def prepare(self, sites: tuple) -> None:
        """See Part."""
        if self.experiment.kv_transfer is not None:
            self.transfer = _plan(self.experiment, sites)
            self.notes = {site.pool.name: rate_notes(self.experiment.kv_transfer, site) for site in sites}

    def plan(self, plan, sink):
        """See Part."""
        if self.transfer is None:
            return plan
        from simulator.engine.hand_over.build import Split

        made = self.transfer
        if self.experiment.kv_transfer.answer_hop_us is None and made.order == "source" and made.place == "asked":
            made = replace(made, hop_ns=max((pool.host.shift_ns for pool in plan.pools if pool.role == "prefill"),
                                            default=0))
        legs = self.experiment.cluster.disaggregation
        early = order_notes(made, ((legs and legs.decode) or self.experiment.cluster.routing).policy, plan.pools)
        return replace(plan, split=Split(made), pools=tuple(
            replace(pool, notes=(*pool.notes, *self.notes.get(pool.name, ()), *early.get(pool.name, ())))
            for pool in plan.pools))

    def report(self, run, cluster) -> None:
        """See Part."""
        run.columns |= columns_of(run)

    def events(self, run, window) -> Iterable[str]:
        return transfer_events(run, window)

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        return metrics_of(measured_part(run))


def prefill_replicas(replicas: int, ratio: float, upstream_compat: bool = False) -> int:
    """Return the number of prefill replicas: replicas x ratio, rounded down.

    upstream_compat : round up, as vidur-alibabacloud routes prompts to all replicas with an index below the product.
        It still counts parameters and memory for the number rounded down.
    """
    if upstream_compat:
        return math.ceil(replicas * ratio)
    return math.floor(replicas * ratio + 1e-9)          # 0.29 x 100 is 28.999999999999996


def _shares(topology, pools, moving) -> Iterator[Fault]:
    """Refuse a pd_node_ratio that `PrefillDecode.unfold` could not turn into pools."""
    key, ratio = ("topology", "pd_node_ratio"), topology.pd_node_ratio
    if pools:
        said = [key] if ratio is not None else [
            ("pools", i, *key) for i, pool in enumerate(pools) if pool.topology.pd_node_ratio is not None]
        for path in said:
            yield path, "expected none with [[pools]]: their role says which replicas compute prompts"
    elif ratio is not None and ratio < 1:
        is_compat = getattr(moving, "upstream_compat", False)      # no table or unreadable: False
        leg = "decode" if prefill_replicas(topology.replicas, ratio, is_compat) else "prefill"
        yield key, (
            f"expected a share that leaves replicas for both, found {ratio} of {topology.replicas}: none for {leg}")


def _partners(pools, moving) -> Iterator[Fault]:
    """Refuse pools if no other pool begins or continues their requests.

    moving : [kv_transfer]; None: absent.
    """
    split = [pool for pool in pools if pool.role in LEGS]
    if split and moving is None:
        names = " and ".join(f'"{pool.name}"' for pool in split)
        yield ("kv_transfer",), (f"missing table; the role of pool {names} needs it for the transfer of KV from "
                                 'prefill to decode replicas: for instance [kv_transfer] protocol = "nixl"')
    for i, pool in enumerate(pools if moving is not None else ()):
        others = {each.role for each in pools if each.serves == pool.serves} - {"encode"}
        for role, other, task in (("prefill", "decode", "continue"), ("decode", "prefill", "compute")):
            if pool.role == role and others == {role}:
                yield ("pools", i, "role"), (
                    f'"{role}" needs a pool with role = "{other}" or "both" that serves the same requests: no pool '
                    f"would {task} its prompts")


def _plan(experiment, sites: tuple[Site, ...]):
    """Return the HandOverPlan of an experiment."""
    from simulator.engine.hand_over.settings import hand_over_plan

    pools, chosen = [site.pool for site in sites], experiment.cluster.disaggregation
    deployments = collect_faults(*[partial(getattr, site, "deployment") for site in sites])
    fronts = [front_of(experiment, chosen and getattr(chosen, leg)) for leg in LEGS]
    disaggregated = {pool.serves for pool in pools if pool.role != "both"}
    block_bytes = collect_faults(*[
        partial(_block_bytes, experiment.kv_transfer, site, site.pool.serves in disaggregated) for site in sites])
    routing = experiment.cluster.routing
    either = routing.policy == "llumnix" and routing.parameters.enable_adaptive_pd
    made = hand_over_plan(
        experiment.kv_transfer, [("both" if either else pool.role, pool.serves) for pool in pools], deployments, fronts,
        chosen and (registry.load("decider", chosen.decider), chosen.parameters),
        chosen is None or chosen.stage_order == "decode_first", block_bytes)
    return replace(made, either_leg=either)


def _block_bytes(moving, site: Site, is_disaggregated: bool) -> tuple[float, ...] | None:
    """Return the bytes of a transferred block of each layer group; None: no transfer, or no layer groups."""
    if not is_disaggregated:
        return None
    layers = site.layer_groups
    if layers is None:
        return None
    if site.group_plan is None and moving.kv_bytes_per_token is None:
        raise InputErrors([KeyFault("kv_transfer.kv_bytes_per_token: missing; expected a number, since "
                                    "engine.kv_cache_groups are not those of the model")])
    if moving.kv_bytes_per_token is not None:
        return tuple(moving.kv_bytes_per_token / len(layers.groups) * group.block_size for group in layers.groups)
    return site.group_plan.moved_bytes(site.stored)
