"""Failures, cooldowns and autoscaling: replicas that start, stop, fail and get no requests; table /lifecycle."""
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Fault, Part, Rows
from simulator.assembly.parts.late import late_note
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, Place, without
from simulator.domain import records
from simulator.domain.autoscaling import Autoscaling
from simulator.domain.failures import Failure
from simulator.domain.guards import Breaker, Cooldown, Retry
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.domain.restarts import Restart
from simulator.errors import InputErrors, KeyFault, did_you_mean
from simulator.results.journeys import NO_REPLICA
from simulator.results.tables import without_spare

GUARDS = {"cooldowns": "cluster.cooldown", "circuit breakers": "cluster.breaker",
          "waits before retries": "cluster.retry"}
RESTARTS = Feature("rolling restarts", "restarts")
UPDATES = Feature("rolling updates", "restarts[].to")
WHOLE_ONLY = "failures of a part of a request are not counted"


def _autoscaler(place: Place) -> type | None:
    return place.autoscaling and registry.load("autoscaler", place.autoscaling.policy)


def _roles(pools) -> set[str]:
    return {pool.role for pool in pools if pool.role != "encode"} or {"both"}


def _are_fit(policy: type | None, roles: set[str]) -> bool:
    """Return whether an autoscaler of prefill and decode replicas can decide on pools with the given roles."""
    return roles == {"prefill", "decode"} or (getattr(policy, "takes_whole", False) and roles == {"both"})


class Upkeep(Part):
    """Failures, cooldowns and autoscaling, which share the record of states."""

    keys = {"failures": Annotated[tuple[Failure, ...], Meta(description="failures of replicas")],
            "restarts": Annotated[tuple[Restart, ...], Meta(description="rolling restarts of replicas")],
            "autoscaling": Annotated[Autoscaling | None, Meta(description=(
                "starting and stopping of replicas, with the keys of the policy; absent: their number is fixed"))],
            "cluster.cooldown": Annotated[Cooldown | None, Meta(description=(
                "time without requests for a replica with failures; absent: none"))],
            "cluster.breaker": Annotated[Breaker | None, Meta(description=(
                "circuit breakers of replicas; absent: none"))],
            "cluster.retry": Annotated[Retry | None, Meta(description=(
                "waits before requests that lost their replica are sent elsewhere; absent: they are sent at once"))]}
    conflicts = (
        Conflict(Feature("autoscalers of whole requests", "autoscaling.policy", value=lambda place: (
            getattr(_autoscaler(place), "why_no_roles", "") and place.autoscaling.policy)), has.ROLES,
            lambda place: _autoscaler(place).why_no_roles, "they decide on replicas that serve whole requests"),
        Conflict(Feature("autoscaling by times to first token", "autoscaling.targets[].metric", value=lambda place: (
            any(each.metric == "ttft" for each in getattr(
                place.autoscaling and place.autoscaling.parameters, "targets", ())) and "ttft")), has.ROLES,
            "the first token of a request is the work of both its replicas"),
        Conflict(Feature('autoscaler "planner"', "autoscaling.policy", value=lambda place: (
            getattr(_autoscaler(place), "needs_roles", False) and place.autoscaling.policy)), Feature(
                "other pools than for prefill and decode", "pools",
                phrase='other pools than of role "prefill" and "decode"',
                value=lambda place: not _are_fit(_autoscaler(place), _roles(place.pools))),
            lambda place: "it balances these two" + (
                ", or pools that serve whole requests alone" if _autoscaler(place).takes_whole else ""),
            "it balances these two, or, as some do, pools that serve whole requests alone"),
        Conflict(Feature("requests that leave a slow replica", "failures[].on_failure", ("retry", "restart", "lost")),
                 without(used.MOVES), "it moves requests"),
        Conflict(Feature("requests that leave a removed replica", "autoscaling.drain", "finish"), without(used.MOVES),
                 "it moves requests"),
        Conflict(Feature("one budget for all autoscalers", "autoscaling.shared_budget"), Feature(
            "scaling to zero", "autoscaling.zero"), "it starts and stops replicas beside the policy"),
        Conflict(RESTARTS, has.ROLES, "the fate of KV that a stopping replica holds for others is not settled"),
        Conflict(UPDATES, Feature("autoscaling", "autoscaling"), "both decide how many replicas there are"),
        Conflict(UPDATES, Feature("shares of the requests for pools", "cluster.traffic_split"),
                 "a request stays with its pool, and no replica of the old one is left"),
        Conflict(UPDATES, Feature("pool selection", "cluster.pool_selection"),
                 "a request stays with its pool, and no replica of the old one is left"),
        Conflict(RESTARTS, used.FAILURES, "restarts of replicas that fail meanwhile are not settled"),
        Conflict(Feature("requests that leave a replica that restarts", "restarts[].drain", "finish"),
                 without(used.MOVES), "it moves requests"),
        *(Conflict(Feature(title, key), has.ROLES, WHOLE_ONLY) for title, key in GUARDS.items()),
        Conflict(Feature("waits before retries", "cluster.retry"), without(used.FAILURES),
                 "no request loses its replica"),
    )
    tables = {"lifecycle": Rows(without_spare(records.LIFECYCLE), "all replicas were up all the time")}

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        failures, scaling, pools = sections["failures"], sections["autoscaling"], sections["pools"]
        restarts = sections["restarts"]
        yield from _named_pools("failures", () if failures is missing else failures, pools)
        yield from _named_pools("restarts", () if restarts is missing else restarts, pools)
        yield from _updates(() if restarts is missing else restarts, pools)
        for i, restart in enumerate(() if restarts is missing or scaling is not None else restarts):
            if restart.loading_delay is None:
                yield ("restarts", i, "loading_delay"), "missing; it is that of [autoscaling] only where there is one"
        if scaling not in (None, missing) and scaling.max_replicas is not None and sections["topology"] is not missing:
            yield from _bounds(scaling, pools, sections["topology"])
        if scaling not in (None, missing):
            policy = registry.load("autoscaler", scaling.policy)
            computing = tuple(pool for pool in pools if pool.role != "encode")
            for key, fault in policy.faults(scaling.parameters, scaling.interval_s or policy.interval_s, computing):
                yield ("autoscaling", key), fault
            for key in policy.unread:
                if getattr(scaling, key) is not None:
                    yield ("autoscaling", key), (f'expected none with policy = "{scaling.policy}", whose changes come '
                                                 "at instants of their own")

    def pool(self, pool):
        """Return a pool with its max_replicas, by [autoscaling] unless given."""
        most = getattr(self.experiment.autoscaling, "max_replicas", None)
        return pool if pool.role == "encode" else replace(pool, max_replicas=pool.max_replicas or most)

    def repeated(self, replicas: int, span_s: float) -> Iterator[tuple[str, float, str]]:
        for i, failure in enumerate(self.experiment.failures):
            if failure.mtbf_s is not None:
                cycle_s = failure.mtbf_s + (failure.mttr_s or failure.duration_s or math.inf)
                targets = replicas if (failure.which, failure.target) == ("each", "replica") else 1
                yield f"failures[{i}].mtbf_s", 2 * targets * span_s / cycle_s, "failures and repairs"
        scaling = self.experiment.autoscaling
        if scaling is not None:
            interval_s = scaling.interval_s or registry.load("autoscaler", scaling.policy).interval_s
            yield "autoscaling.interval_s", span_s / interval_s, "decisions"
            if scaling.metrics is not None:
                yield ("autoscaling.metrics.scrape_interval_s", span_s / scaling.metrics.scrape_interval_s, "scrapes")
            if scaling.zero is not None:
                yield "autoscaling.zero.poll_s", span_s / scaling.zero.poll_s, "polls"

    def prepare(self, sites: tuple) -> None:
        """See Part; the durations of reading weights are those of each pool."""
        read = self.experiment.autoscaling and self.experiment.autoscaling.weights
        self.weight_bytes = tuple(_weight_bytes(read, site) for site in sites) if read else None

    def plan(self, plan, sink):
        """See Part; requests may leave replicas before they are complete."""
        _check_budget(self.experiment.autoscaling and self.experiment.autoscaling.shared_budget, plan.pools)
        loses_links = any(failure.kind == "link" for failure in self.experiment.failures)
        later = {restart.to for restart in self.experiment.restarts}
        plan = replace(plan, pools=tuple(replace(pool, replicas=0, max_replicas=pool.places) if pool.name in later else
                                         pool for pool in plan.pools))
        return replace(super().plan(plan, sink), keeps_journeys=True, keeps_legs=True,
                       tracks_identity=True if loses_links else plan.tracks_identity)

    def summary(self, run, summary):
        """See Part; simplifications of the autoscaler, and the counted failures."""
        cluster, scaling = self.experiment.cluster, self.experiment.autoscaling
        notes = [note for i, each in enumerate(self.experiment.restarts) for note in late_note(
            f"restarts[{i}].at_s", each.at_s, summary["clock_s"], "the restart")]
        notes += _scaling_notes(scaling, summary["clock_s"]) if scaling else []
        if scaling and cluster.gateway_queue is None and (scaling.min_replicas == 0 or scaling.zero):
            notes += _refused_at_zero(run)
        if cluster.cooldown is not None or cluster.breaker is not None:
            barred = sum(records.LIFECYCLE_CAUSES[row["cause"]] in ("cooldown", "breaker") for row in run.lifecycle)
            notes.append(
                f"after failures the gateway stopped sending requests to a replica {barred} times; failures are "
                "requests given up at a replica, refused for a full queue of SGLang's, or lost with their replica, and "
                "no other errors of servers are simulated")
        if any(restart.to for restart in self.experiment.restarts):
            notes.append("restarts: in a rolling update a replica that drains keeps its accelerators and counts "
                         "towards max_surge, as pods that wait for a node do; the machine of a new replica is there "
                         "at once")
        return {"diagnosis": notes} if notes else {}

    def operations(self, sink) -> tuple:
        from simulator.engine.operations import upkeep

        failures, scaling = self.experiment.failures, self.experiment.autoscaling
        cluster = self.experiment.cluster

        def make(fleet, gateways, plan):
            made = upkeep.Upkeep(fleet, gateways, plan, failures=failures, health=cluster.health, autoscaling=scaling,
                                 autoscaler=scaling and registry.load("autoscaler", scaling.policy))
            made.guard(cluster.cooldown, cluster.breaker, cluster.retry)
            if self.experiment.restarts:
                made.restart(self.experiment.restarts)
            if self.weight_bytes is not None:
                made.read_weights(self.weight_bytes)
            return made

        return (make,)


def _scaling_notes(scaling, clock_s: float) -> list[str]:
    """Return remarks on an autoscaler, and on a run that ends before it could decide or predict."""
    policy = registry.load("autoscaler", scaling.policy)
    notes, first_s = list(policy.notes(scaling.parameters)), scaling.interval_s or policy.interval_s
    orders = getattr(scaling.parameters, "changes", ())
    if clock_s < first_s and not orders:
        notes.append(f"autoscaling: the run ended after {clock_s:,.4g} s, before the first decision of "
                     f'policy = "{scaling.policy}" at interval_s = {first_s:g}')
    else:
        notes += policy.unfounded(scaling.parameters, clock_s)
    for i, order in enumerate(orders):
        notes += late_note(f"autoscaling.changes[{i}].at_s", order.at_s, clock_s, "the order")
    return notes


def _refused_at_zero(run) -> list[str]:
    """Return a remark on requests that found no replica, where no queue keeps them until one has started."""
    statuses = run.workload.requests["status"]
    count = int(((statuses == records.REJECTED) & (run.journeys["cause"] == NO_REPLICA)).sum())
    return [f"autoscaling: requests that came while no replica served were refused, {count:,} in all: a gateway "
            "without [cluster.gateway_queue] keeps none until a replica has started"] if count else []


def _check_budget(budget, pools) -> None:
    """Raise InputErrors if the replicas of time 0 have more accelerators than all may have together."""
    there = sum(pool.replicas * pool.accelerators for pool in pools)
    if budget is not None and budget.max_gpus is not None and there > budget.max_gpus:
        raise InputErrors([KeyFault(f"autoscaling.shared_budget.max_gpus: expected at least {there}, the accelerators "
                                    f"at time 0, found {budget.max_gpus}")])


def _weight_bytes(read, site) -> float:
    """Return the size of the weights of a replica, which it reads once."""
    if read.size_gb is not None:
        return read.size_gb * 1e9
    if site.stored is None:
        raise InputErrors([KeyFault("autoscaling.weights.size_gb: missing; without [model] give the size")])
    return rank_weights(replace(site.stored, parallelism=Parallelism(), experts=None)).num_bytes


def _named_pools(key: str, given, pools) -> Iterator[Fault]:
    names, encode = [pool.name for pool in pools], {pool.name for pool in pools if pool.role == "encode"}
    for i, each in enumerate(given):
        if each.pool in encode:
            yield (key, i, "pool"), (
                f'replicas of "{each.pool}", an encode pool, do not {"fail" if key == "failures" else "restart"}: '
                f"{key} with items at a replica are not supported")
        elif each.pool is not None and each.pool not in names:
            yield (key, i, "pool"), f'there is no pool "{each.pool}"{did_you_mean(each.pool, names)}'


def _updates(restarts, pools) -> Iterator[Fault]:
    """Yield faults of rolling updates from one pool to another."""
    by_name = {pool.name: pool for pool in pools}
    for i, restart in enumerate(restarts):
        if restart.to is None or restart.pool not in by_name:
            continue
        path, old, new = ("restarts", i, "to"), by_name[restart.pool], by_name.get(restart.to)
        others = [each for j, each in enumerate(restarts) if j != i]
        if new is None:
            yield path, f'there is no pool "{restart.to}"{did_you_mean(restart.to, by_name)}'
        elif new.role == "encode":
            yield path, f'"{restart.to}" is an encode pool, which no update takes'
        elif (new.at_start, new.serves) != (old.at_start, old.serves):
            yield path, (f'expected a pool that serves the same requests as "{old.name}" with as many replicas, '
                         f'{old.at_start}, found "{new.name}" with {new.at_start}')
        if any(each.pool in (None, restart.pool, restart.to) or each.to in (restart.pool, restart.to)
               for each in others):
            yield path, f'"{restart.pool}" and "{restart.to}" take part in this update alone, not in other restarts'


def _bounds(scaling, pools, topology) -> Iterator[Fault]:
    path, most = ("autoscaling", "max_replicas"), scaling.max_replicas
    pools = [pool for pool in pools if pool.role != "encode"]
    replicas = max((pool.at_start for pool in pools if pool.max_replicas is None), default=0) if pools else (
        topology.replicas)
    if most < scaling.min_replicas:
        yield path, f"expected at least min_replicas = {scaling.min_replicas}, found {most}"
    if most < replicas:
        yield path, f"expected at least {replicas}, the replicas at time 0, found {most}"
