"""Pools that serve the requests that another pool failed to serve, for [[cluster.fallbacks]]."""
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Fault, Part
from simulator.assembly.parts.client_retries import without_resends
from simulator.config.conflicts import Conflict, Feature
from simulator.domain import records
from simulator.domain.columns import Column
from simulator.domain.fallbacks import FAILED, Fallback
from simulator.errors import did_you_mean
from simulator.results.summary_keys import keys_of

KEY, SELECTION = "cluster.fallbacks", "cluster.pool_selection.retry"
CLIENTS = Feature("client retries", "workload.client_retry")
OWN, SELECTED = Feature("fallbacks between pools", KEY), Feature("retries of pool selection", SELECTION)


def _proxy(ways, fleet, gateways, plan, gateway_of):
    from simulator.engine.operations.client_retries import ClientRetries

    names = [str(name) for name in fleet.workload.labels.get("model", ())]
    codes = {names.index(of): ([names.index(name) for name in to], on) for of, (to, on) in ways.items() if of in names}
    return ClientRetries(fleet, gateways, plan, None, gateway_of, codes)


class Fallbacks(Part):
    """Pools that serve the requests that another pool failed to serve."""

    keys = {KEY: Annotated[tuple[Fallback, ...], Meta(description=(
        "pools to which a gateway sends the requests that another pool failed to serve"))]}
    columns = {"fallbacks": Column("", "times that its gateway sent the request on to another pool", "max")}
    summary_before = "itl_ms"
    summary_keys = keys_of(fallbacks__sent="times that gateways sent a request on to another pool, as one failed",
                           fallbacks__requests="requests that were sent on to another pool",
                           fallbacks__completed="requests of fallbacks.requests that completed")
    conflicts = (
        *without_resends(OWN), *without_resends(SELECTED),
        *(Conflict(feature, CLIENTS, "requests that both their gateway and their client send again are not built")
          for feature in (OWN, SELECTED)),
        Conflict(OWN, SELECTED, "each of the two names the next pool"))

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        given, pools = sections["cluster"], sections["pools"]
        if given in (None, missing) or pools is missing:
            return
        names = _served(given, pools)
        for i, each in enumerate(given.fallbacks):
            for key, name in (("of", each.of), *(("to", name) for name in each.to)):
                if name not in names:
                    yield ("cluster", "fallbacks", i, key), (
                        f'no pool serves "{name}"{did_you_mean(name, names)}')
            if each.of in [other.of for other in given.fallbacks[:i]]:
                yield ("cluster", "fallbacks", i, "of"), f'expected each name once, found "{each.of}" again'

    @property
    def _ways(self) -> dict[str, tuple[Iterable[str], Iterable[str]]]:
        """Names that are tried after each name, in order, and the failures after which they are."""
        selection = self.experiment.cluster.pool_selection
        return {each.of: (each.to, each.on) for each in self.experiment.cluster.fallbacks} | {
            name: (to, FAILED) for name, to in (selection.retries if selection else {}).items()}

    def requests(self, columns, seed: int):
        """See Part; the column model may have the name of any pool."""
        codes, known = columns.labels.get("model", (None, ()))
        if codes is None:
            return columns
        names = dict.fromkeys([*map(str, known), *(name for to, _ in self._ways.values() for name in to)])
        return replace(columns, labels=columns.labels | {"model": (codes, list(names))})

    def plan(self, plan, sink):
        """See Part."""
        return replace(super().plan(plan, sink), keeps_journeys=True, keeps_legs=True,
                       resends=partial(_proxy, self._ways))

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        sent, is_done = run.columns["fallbacks"], run.workload.requests["status"] == records.COMPLETED
        return {"fallbacks": {"sent": int(sent.sum()), "requests": int((sent > 0).sum()),
                              "completed": int((is_done & (sent > 0)).sum())}, "diagnosis": [
            f"{KEY}, {SELECTION}: the column model names the pool that had a request last; tokens of an earlier "
            "attempt are void"]}


def _served(cluster, pools) -> list[str]:
    """Return the names by which requests name pools."""
    by_name = cluster.pool_selection is not None or cluster.traffic_split is not None
    return [name for pool in pools if (name := pool.name if by_name else pool.serves) and pool.role != "encode"]
