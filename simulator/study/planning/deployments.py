"""Deployments by size: for each layout the ways to run it on more and more GPUs, with predicted rates."""
from typing import Any, NamedTuple

from simulator.study.planning.units import Unit

AGGREGATED, RANKED, PIPELINED = "aggregated", "data-parallel", "pipelined"
DISAGGREGATED = "disaggregated"
MOST = {AGGREGATED: 3, RANKED: 2, PIPELINED: 1, DISAGGREGATED: 3}       # families that are simulated, by prediction
BEHIND = 0.6                    # of the best predicted rate: families below are not simulated, but the best of its kind
MOST_HOPELESS = 2               # families that are simulated where none is predicted to keep the bounds
MOST_OF_A_ROLE = 2              # units for prefill, and for decode, that are combined, with ranks or without
POOLS = {"prefill": "pools.0", "decode": "pools.1"}
RATE = "workload.arrival.rate_per_s"


class Deployment(NamedTuple):
    """Replicas of one layout, or pools for prefill and decode.

    words : TP2 x 4; or P TP2 x 1, D TP1 x 3 for pools. point : of the study. rate : predicted requests a second.
    """

    words: str
    gpus: int
    point: dict[str, Any]
    rate: float

    def at(self, rate: float) -> "Deployment":
        """Return the deployment at a rate of its own."""
        return self._replace(point=self.point | {RATE: rate})


class Family(NamedTuple):
    """One layout on more and more GPUs.

    name : layouts of its replicas. rungs : from the fewest GPUs to as many as there are.
    """

    kind: str
    name: str
    rungs: tuple[Deployment, ...]

    def gpus_for(self, rate: float) -> float:
        """Return the predicted number of GPUs that hold a rate; inf: more than there are."""
        return next((each.gpus for each in self.rungs if each.rate >= rate), float("inf"))


def families_of(units: list[Unit], gpus: int, is_split: bool) -> list[Family]:
    """Return the families of layouts on at most so many GPUs.

    is_split : whether prefill and decode may be separate.
    """
    found = [Family(_kind(unit), unit.words, tuple(
        _aggregated(unit, count) for count in range(1, gpus // unit.gpus + 1)))
             for unit in units if unit.gpus <= gpus]
    for kind in (AGGREGATED, RANKED) if is_split else ():           # no engine hands over KV of pipeline stages
        best = {role: sorted((each for each in units if _kind(each) == kind and each.rates[role]),
                             key=lambda each: -each.rates[role] / each.gpus)[:MOST_OF_A_ROLE] for role in POOLS}
        found += [family for prefill in best["prefill"] for decode in best["decode"]
                  if (family := Family(DISAGGREGATED, f"P {prefill.words}, D {decode.words}",
                                       tuple(_ladder(prefill, decode, gpus)))).rungs]
    return found


def chosen(families: list[Family], rate: float | None) -> list[Family]:
    """Return the families that are simulated: of each kind the best by prediction.

    Families far behind the best are left out.

    Parameters
    ----------
    rate : to hold, by the fewest GPUs; None: the largest rate of all GPUs.
    """
    best = max((each.rungs[-1].rate / each.rungs[-1].gpus for each in families), default=0.0)
    found = []
    for kind, most in MOST.items():
        own = [each for each in families if each.kind == kind and (best or kind != DISAGGREGATED)]
        own.sort(key=lambda each: (0.0 if rate is None else each.gpus_for(rate), -each.rungs[-1].rate,
                                   -each.rungs[0].gpus))
        found += [each for number, each in enumerate(own[:most if best else MOST_HOPELESS])
                  if (number == 0 and kind != PIPELINED) or each.rungs[-1].rate / each.rungs[-1].gpus >= BEHIND * best]
    return found


def _kind(unit: Unit) -> str:
    if unit.fit.ways["pipeline_parallel"] > 1:
        return PIPELINED
    return RANKED if unit.fit.ways["data_parallel"] > 1 else AGGREGATED


def _aggregated(unit: Unit, count: int) -> Deployment:
    point = _degrees("topology", unit) | {"topology.replicas": count}
    return Deployment(f"{unit.words} x {count}", count * unit.gpus, point, count * unit.rates["both"])


def _ladder(prefill: Unit, decode: Unit, gpus: int):
    """Yield splits on more and more GPUs: each time the side that limits the rate gets a replica."""
    counts = {"prefill": 1, "decode": 1}
    units = {"prefill": prefill, "decode": decode}
    while (taken := sum(counts[role] * units[role].gpus for role in POOLS)) <= gpus:
        point = {}
        for role, pool in POOLS.items():
            point |= _degrees(f"{pool}.topology", units[role]) | {f"{pool}.replicas": counts[role]}
        rates = {role: counts[role] * units[role].rates[role] for role in POOLS}
        words = f"P {prefill.words} x {counts['prefill']}, D {decode.words} x {counts['decode']}"
        yield Deployment(words, taken, point, min(rates.values()))
        counts[min(POOLS, key=rates.get)] += 1


def _degrees(table: str, unit: Unit) -> dict[str, Any]:
    return {f"{table}.{name}": degree for name, degree in unit.fit.ways.items()
            if degree > 1 or name == "tensor_parallel"}
