"""Regions with latency between them, for [cluster.regions]."""
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Fault, Part
from simulator.assembly.parts.gateways import multiplied, routers_of
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.columns import Column
from simulator.domain.regions import Regions
from simulator.errors import InputErrors, KeyFault, did_you_mean
from simulator.results.regions import SUMMARY_KEYS, metrics_of, notes_of, notes_of_hopeless

KEY = "cluster.regions"
REGIONS = Feature("regions", KEY)
QUEUES = Feature("gateway queues of regions", "cluster.gateway_queue", value=lambda place: (
    place.cluster.regions and place.cluster.gateway_queue))


class RegionsPart(Part):
    """Regions with latency between them."""

    keys = {KEY: Annotated[Regions | None, Meta(description=(
        "regions with latency between them, a gateway and replicas in each; absent: one region"))]}
    columns = {"home_region": Column("", "[cluster.regions] region that the request comes from, in order of names"),
               "region": Column("", "region with the replica that serves the request")}
    summary_keys = SUMMARY_KEYS
    conflicts = (
        Conflict(QUEUES, has.ROLES, "its saturation would be that of the decode replicas of all regions"),
        Conflict(REGIONS, used.ADAPTIVE, "one scheduler would choose both replicas among those of all regions"),
        Conflict(REGIONS, Feature("programs of agents", "cluster.programs"),
                 "one policy places programs on the replicas of all regions"),
    )

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        cluster, pools, topology = (sections[name] for name in ("cluster", "pools", "topology"))
        if missing in (cluster, pools, topology) or cluster is None or cluster.regions is None:
            return
        table, path = cluster.regions, ("cluster", "regions")
        names, placed = [pool.name for pool in pools], [name for region in table.pools for name in region]
        for name in placed:
            if name not in names:
                yield (*path, "pools"), f'there is no pool "{name}"{did_you_mean(name, names)}'
        left_out = [name for name in names if name not in placed]
        if table.pools and left_out:
            yield (*path, "pools"), f'expected each pool in a region, "{left_out[0]}" is in none'
        yield from (((*path, "pools"), message) for message in _without_encoders(table, pools))
        if table.replicas and pools:
            yield (*path, "replicas"), "with [[pools]] give pools, the pools of each region"
        elif table.replicas and sum(table.replicas) != topology.replicas:
            yield (*path, "replicas"), (f"expected a sum of topology.replicas = {topology.replicas}, found "
                                        f"{sum(table.replicas)}")
        if table.replicas and sections["autoscaling"] not in (None, missing):
            yield (*path, "replicas"), "with [autoscaling] give [[pools]] and pools, which grow each by itself"

    def meet(self, prepared) -> None:
        """See Part; the column of the requests has to name regions."""
        workload, faults = prepared.workload, []
        column, by = self._table.column, self._table.by
        if by != "request" and not workload.labels.get(by):
            faults.append(f'by: expected "request", since no request has a {by}, found "{by}"')
        unknown = [name for name in workload.labels.get(column, ()) if name not in self._table.names]
        if column is not None and (unknown or not workload.labels.get(column)):
            found = f'found "{unknown[0]}"' if unknown else "no request has one"
            faults.append(f'column = "{column}": expected names of regions, {", ".join(self._table.names)}, {found}')
        if faults:
            raise InputErrors([KeyFault(f"{KEY}: {fault}") for fault in faults])

    def plan(self, plan, sink):
        """See Part; each region has a gateway, of one or several instances."""
        plan, split = super().plan(plan, sink), plan.split
        if split:
            fronts = split.settings.prefill_front, split.settings.decode_front
            prefill_front, decode_front = (self._multiplied(front) for front in fronts)
            split = type(split)(replace(split.settings, prefill_front=prefill_front, decode_front=decode_front))
        return replace(plan, front=self._multiplied(plan.front), split=split, keeps_journeys=True, far_clients=_clients)

    def _multiplied(self, front):
        """Return the settings of a gateway with instances for each region."""
        gateways, count = self.experiment.cluster.gateways, len(self._table.names)
        if gateways is None:
            return multiplied(front, count, "round_robin", count)
        return multiplied(front, gateways.count * count, gateways.assignment, count)

    def operations(self, sink) -> tuple:
        from simulator.engine.operations.regions import RegionForwarding

        return (partial(_forwarding, RegionForwarding, self._table, self._latency_ns),)

    def report(self, run, cluster) -> None:
        """See Part: first tokens come later, or not at all.

        FarClients has changed the ends.
        """
        requests, deadlines_ns = run.workload.requests, run.workload.demands["deadline_ns"]
        first_ns, homes, regions = requests["first_token_ns"], run.columns["home_region"], run.columns["region"]
        first_ns += np.where(first_ns >= 0, self._latency_ns[regions, homes], 0)
        is_late = (requests["status"] == records.TIMED_OUT) & (regions != homes) & (first_ns > deadlines_ns)
        if run.horizon_ns is not None or not run.complete:
            is_late |= first_ns > run.clock_ns
        first_ns[is_late] = records.NEVER_NS

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        found = metrics_of(run, self._table.names, self._latency_ns)
        notes = [f"[{KEY}] the gateway of a region knows at once which replicas of other regions are routable; counts "
                 "of replicas and metrics of pools are by the clock of the replicas"]
        if (run.workload.demands["deadline_ns"] >= 0).any():
            notes.append(f"[{KEY}] a region works on a request until it learns that the client gave up: output_tokens "
                         "counts that, token_times does not; a client sends again once the region has learnt it")
            notes += notes_of_hopeless(run, self._latency_ns)
        return {"regions": found, "diagnosis": [*notes_of(found), *notes]}

    @property
    def _table(self) -> Regions:
        return self.experiment.cluster.regions

    @property
    def _latency_ns(self) -> np.ndarray:
        return np.rint(np.array(self._table.latency_ms, np.float64) * 1e6).astype(np.int64)


def _without_encoders(table: Regions, pools) -> Iterator[str]:
    """Yield a message for each region with a pool, and without encoders of its requests."""
    for name, names in zip(table.names, table.pools, strict=False):
        here = [pool for pool in pools if pool.name in names]
        encoded, encoding = ({pool.serves for pool in each if pool.role == "encode"} for each in (pools, here))
        for pool in here:
            if pool.serves in encoded - encoding and pool.role != "encode":
                yield f'region "{name}" has pool "{pool.name}" and none of role "encode" that serves the same requests'


def _clients(fleet, gateways, gateways_of, clients):
    """Return the operation of clients that learn late of what happens in other regions."""
    from simulator.engine.operations.regions import RegionForwarding
    from simulator.engine.sources.far_clients import FarClients

    forwarding, = (each for each in fleet.operations if isinstance(each, RegionForwarding))
    return FarClients(fleet, gateways, forwarding, gateways_of, clients)


def _forwarding(kind, table: Regions, latency_ns, fleet, gateways, plan):
    """Return the operation that forwards requests; routers of a region see its replicas alone."""
    of_views = [regions_of(table, gateway.view, plan) for gateway in gateways]
    for gateway in gateways:
        router = routers_of(gateway.router)             # its view has whole replicas, that of the gateway ranks
        for replica, own in enumerate(regions_of(table, router.views[0], plan).tolist()):
            for instance in range(router.assignment.count):
                if instance // router.assignment.each != own:
                    router.bar(instance, replica, 1, 0)
    firsts, decodes = gateways[:plan.num_models], iter(range(plan.num_models, len(gateways)))
    seconds = [next(decodes) if model in plan.split_models else -1 for model in plan.models]
    for first, second in zip(firsts, seconds, strict=True):
        if second >= 0:                                 # both legs of a request are in one region
            routers_of(gateways[second].router).follow(routers_of(first.router))
    assignments = [routers_of(gateway.router).assignment for gateway in firsts]
    return kind(fleet, gateways, [*zip(assignments, seconds, strict=True)],
                _homes(table, fleet.shared.workload, plan.seed), of_views, latency_ns,
                (table.spill_at, table.policy == "lowest_latency"))


def regions_of(table: Regions, view, plan) -> np.ndarray:
    """Return the region of each replica, or rank, of a view, int32."""
    if table.pools:
        region_of = {name: region for region, names in enumerate(table.pools) for name in names}
        of_pools = np.array([region_of[pool.name] for pool in plan.pools], np.int32)
        return of_pools[view.account_array["pool"]]
    of_replicas = np.repeat(np.arange(len(table.names), dtype=np.int32), table.replicas)
    return of_replicas[view.account_array["replica"] // plan.pools[0].ranks]


def _homes(table: Regions, workload, seed: int) -> np.ndarray:
    """Return the home region of each request, int32."""
    count = len(workload.requests)
    if table.column is not None:
        of_names = np.array([table.names.index(name) for name in workload.labels[table.column]] + [0], np.int32)
        return of_names[workload.demands[table.column][:count]]
    draws = RandomStreams(seed).generator("regions")
    homes = _drawn(draws, table.weights, count)
    if table.by != "request":
        codes = workload.demands[table.by][:count]
        homes = np.where(codes >= 0, np.append(_drawn(draws, table.weights, int(codes.max(initial=-1)) + 1), 0)[codes],
                         homes)
    return homes.astype(np.int32)


def _drawn(draws: np.random.Generator, weights: tuple[float, ...], count: int) -> np.ndarray:
    """Draw `count` regions by weights."""
    return draws.choice(len(weights), count, p=np.array(weights) / np.sum(weights)).astype(np.int32)
