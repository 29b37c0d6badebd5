"""Migration of requests between replicas, for [cluster.rescheduling]."""
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.assembly.parts.late import late_note
from simulator.assembly.parts.regions import regions_of
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Place
from simulator.config.experiment import Count, Section
from simulator.errors import InputErrors, KeyFault

KEY = "cluster.rescheduling"


def _copy_blocks(one: Place, two: Place) -> str:
    moving = one.cluster.rescheduling
    if one.serves != two.serves or moving is None or moving.mode == "recompute":
        return ""
    return (f'cluster.rescheduling.mode = "{moving.mode}" copies KV blocks unchanged between pools that serve the same '
            "requests")


class Rescheduling(Section, kw_only=True):
    """Migration of requests, [cluster.rescheduling], with the rescheduler's keys."""

    policy: Annotated[str, Meta(description="rescheduler that chooses requests and their new replicas")] = "rebalance"
    interval_s: Annotated[Annotated[float, Meta(ge=1e-6, le=1e6)] | None, Meta(description=(
        "time between two plans of the rescheduler; default: the rescheduler's"))] = None
    mode: Annotated[Literal["live", "blocking", "recompute"], Meta(description=(
        "live: KV is copied while the request runs; blocking: while it is paused; recompute: no copy"))] = "live"
    max_migrations_in: Annotated[Count, Meta(extra={"unit": "requests"}, description=(
        "maximum requests in migration to a replica"))] = 1
    max_migrations_out: Annotated[Count, Meta(extra={"unit": "requests"}, description=(
        "maximum requests in migration from a replica"))] = 1
    max_stages: Annotated[Count, Meta(description="live: maximum copy stages, including the final one")] = 3
    last_stage_blocks: Annotated[Count, Meta(description=(
        "live: the request pauses for the final copy when at most this many blocks remain"))] = 16
    bandwidth_gb_per_s: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description=(
        "bandwidth of a replica's link in each direction; default: of its accelerators, in and between link domains"
    ))] = None
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="added latency of each copy")] = 0.0
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "KV bytes per token over all accelerators of a replica; default: the model's"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "rescheduler"})]


class Migration(Part):
    """Migration of requests between replicas."""

    keys = {KEY: Annotated[Rescheduling | None, Meta(description=(
        "migration of requests between replicas; absent: none"))]}
    conflicts = (
        Conflict(used.MOVES, has.ROLES, "a migrating request would leave its lease and the KV that it reads behind"),
        *(Conflict(limit, used.MOVES, "the API server of a migrating request has no say about its destination")
          for limit in (has.QUEUED_REQS, has.QUEUED_TOKENS)),
        Conflict(used.COPIED_MOVES, has.LAYER_GROUPS, "it copies the blocks of one block table; "
                 "engine.disable_hybrid_kv_cache_manager = true gives one where the model allows it"),
        Conflict(used.COPIED_MOVES, has.SHARED_CONTEXT, used.UNMOVED_RANKS),
        Conflict(used.COPIED_MOVES, has.DIVIDED_PROMPTS, used.UNMOVED_RANKS),
        Agreement(used.BLOCKS, _copy_blocks, "pools between which requests are migrated with their KV",
                  "blocks are copied unchanged"),
    )
    ports = ()

    def prepare(self, sites: tuple) -> None:
        """See Part."""
        moving = self.experiment.cluster.rescheduling
        self.ports = tuple(site.named(partial(_port, moving, site)) for site in sites)

    def repeated(self, replicas: int, span_s: float) -> Iterator[tuple[str, float, str]]:
        if interval_s := self.experiment.cluster.rescheduling.interval_s:
            yield f"{KEY}.interval_s", span_s / interval_s, "decisions"

    def plan(self, plan, sink):
        """See Part; requests leave replicas before they are complete."""
        return replace(super().plan(plan, sink), keeps_journeys=True, keeps_legs=True, moves_requests=True)

    def summary(self, run, summary: dict) -> dict:
        """See Part; a rescheduler that never decided."""
        moving = self.experiment.cluster.rescheduling
        notes = late_note(f"{KEY}.interval_s", moving.interval_s or 0.0, summary["clock_s"],
                          f'the first plan of policy = "{moving.policy}"')
        return {"diagnosis": notes} if notes else {}

    def operations(self, sink) -> tuple:
        from simulator.engine.operations import migration
        from simulator.engine.operations.move_plan import MovePlan

        moving = self.experiment.cluster.rescheduling
        plan = MovePlan(
            self.ports, mode=moving.mode, max_in=moving.max_migrations_in, max_out=moving.max_migrations_out,
            latency_ns=round(moving.latency_s * 1e9), max_stages=moving.max_stages,
            last_stage_blocks=moving.last_stage_blocks, rescheduler=registry.load("rescheduler", moving.policy),
            parameters=moving.parameters, interval_ns=moving.interval_s and round(moving.interval_s * 1e9))
        table = self.experiment.cluster.regions
        return (lambda fleet, gateways, cluster: migration.Migration(fleet, gateways, plan, cluster.seed, table and [
            regions_of(table, gateway.view, cluster) for gateway in gateways]),)


def _port(moving, site):
    """Return the links of the replicas of a pool."""
    from simulator.engine.operations.move_plan import Port

    link = site.kv_link
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
    return Port(token_bytes * site.pool.engine.block_size, inner, outer, link.replicas_per_domain if link else 1)
