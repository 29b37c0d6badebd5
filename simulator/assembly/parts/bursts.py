"""Requests that wait for others of a window, for the scorer burst-prefix of [cluster.routing]."""
from msgspec.structs import replace

from simulator.assembly.parts.base import Part
from simulator.assembly.parts.gateways import BUSY
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, table_at

NAME = "burst-prefix"
WHOLE = "it holds whole requests, in front of one router that sees all replicas"
ONE_STAGE = "a gateway holds requests back for one of the two"


def _windows(table: str) -> Feature:
    """Return the feature of the scorer in a routing table."""
    return Feature(f'the scorer "burst-prefix" in [{table}]', f"{table}.scorers", value=lambda place: (
        (chosen := table_at(place, table)) and any(each.name == NAME for each in chosen.scorers) and NAME))


WINDOWS = _windows("cluster.routing")


class Bursts(Part):
    """Requests that wait for others of a window, with which they are placed."""

    conflicts = (
        *(Conflict(_windows(table), has.ROLES, WHOLE) for table in (
            "cluster.routing", "cluster.disaggregation.prefill", "cluster.disaggregation.decode")),
        Conflict(WINDOWS, has.RANKS, WHOLE),
        *(Conflict(WINDOWS, other, ONE_STAGE) for other in (
            BUSY, Feature("programs of agents", "cluster.programs"), Feature("encode pools", "embeddings"))),
        Conflict(WINDOWS, Feature("client retries", "workload.client_retry"),
                 "an attempt may still wait for its window when the next one is sent"),
    )

    def plan(self, plan, sink):
        """See Part; requests wait at the gateway."""
        return replace(super().plan(plan, sink), keeps_journeys=True)

    def operations(self, sink) -> tuple:
        """See Part."""
        from simulator.engine.operations.bursts import Windows

        return (Windows,)
