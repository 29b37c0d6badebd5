"""Energy of a run, as modelled: the power of each phase x the time that accelerators spent in it.

E = sum over phases of P(phase) x time + P(idle) x the rest of the paid time, from wanted to off. Unknown power is not
taken as 0: below 90 % of the time with known power there is no number, as in AISimulate
(ai-dynamo/aisimulate, docs/power-model.md). It is of the measured window where there is one,
else of the whole run. A data-parallel rank without tokens that only keeps step with others has no iterations, and
counts as idle.
"""
import math
from typing import NamedTuple

import numpy as np

from simulator.domain.costs import HOURS, Carbon, Electricity, Numbers, Power
from simulator.domain.run import Run
from simulator.results.power_meter import DECODE, PREFILL, PowerMeter, time_by_hour
from simulator.results.uptime import PAID, measured_ns, stays

LEAST_COVERAGE = 0.9
J_PER_KWH = 3.6e6


class PoweredPool(NamedTuple):
    """The accelerators of a pool, for their power.

    accelerator : its name. places : as in `power_meter.Metered`. accelerators : of each place.
    nodes : of each place, a fraction where several share a node; None: no node is named.
    g_per_kwh, per_kwh : emissions and price of energy where the pool is, by hour from simulated time 0 on where they
        differ; None: not given.
    """

    accelerator: str
    places: int
    accelerators: int
    power: Power | None
    nodes: float | None
    g_per_kwh: Numbers | None = None
    per_kwh: Numbers | None = None


class PowerFacts(NamedTuple):
    """Power keys of an experiment.

    is_by_hour : whether a number differs by hour: then time is counted by hour.
    """

    pools: tuple[PoweredPool, ...]
    carbon: Carbon | None
    electricity: Electricity | None
    is_by_hour: bool = False

    @property
    def first_hour(self) -> int | None:
        """The hour of simulated time 0 for `PowerMeter`.

        It is 0, since each pool has its own hours of the day.
        """
        return 0 if self.is_by_hour else None


class _Watts(NamedTuple):
    """Watts of each place; NaN where not known: in each phase (places, 3), idle, of its nodes."""

    active: np.ndarray
    idle: np.ndarray
    host: np.ndarray
    pue: np.ndarray
    accelerators: np.ndarray


def energy_of(run: Run, facts: PowerFacts, meter: PowerMeter, tokens: int) -> dict:
    """Return the part `energy` of summary.json.

    tokens : output tokens that the energy is divided by.

    Joules cover accelerators of known power: `coverage` is the share of active time with known power,
    `idle_coverage` of the idle time. `average_w` is of all, `active_w_per_accelerator` of one while it works.
    `facility_kwh` includes the pue; CO2 and electricity are computed from it.
    """
    watts, active_ns = _watts(facts.pools), meter.within(run.window)
    replica, begin_ns, end_ns = stays(run, PAID)
    paid_ns = np.zeros((len(watts.idle), active_ns.shape[2]), np.int64)
    np.add.at(paid_ns, replica, time_by_hour(begin_ns, end_ns, facts.first_hour))
    idle_ns = np.maximum(paid_ns * watts.accelerators[:, None] - active_ns.sum(axis=1), 0)
    coverage = _share(active_ns.sum(axis=2), watts.active)
    idle_coverage = _share(idle_ns.sum(axis=1), watts.idle)
    active_j = np.nan_to_num(watts.active)[:, :, None] * active_ns / 1e9            # (places, phases, hours)
    idle_j = np.nan_to_num(watts.idle)[:, None] * idle_ns / 1e9
    host_j = watts.host[:, None] * paid_ns / 1e9
    has_host = not np.isnan(watts.host).any()
    is_known = min(coverage, idle_coverage) >= LEAST_COVERAGE
    all_j = active_j.sum(axis=1) + idle_j + (host_j if has_host else 0.0)           # (places, hours)
    total_j = _sum(all_j) if is_known else None
    clock_s = measured_ns(run) / 1e9
    worked_s = int(active_ns.sum(axis=2)[~np.isnan(watts.active)].sum()) / 1e9
    return {
        "energy_j": {
            "accelerator_active": _sum(active_j) if coverage >= LEAST_COVERAGE else None,
            "accelerator_idle": _sum(idle_j) if idle_coverage >= LEAST_COVERAGE else None,
            "host": _sum(host_j) if has_host else None, "total": total_j},
        "coverage": coverage, "idle_coverage": idle_coverage,
        "average_w": _ratio(total_j, clock_s),
        "active_w_per_accelerator": _ratio(_sum(active_j), worked_s) if coverage >= LEAST_COVERAGE else None,
        "joules_per_output_token": _ratio(total_j, tokens),
        "kwh": _ratio(total_j, J_PER_KWH),
        **_of_the_building(all_j * watts.pue[:, None] / J_PER_KWH if is_known else None, facts),
        "powers": _sources(facts.pools)}


def remarks(energy: dict) -> list[str]:
    """Return remarks on `energy` for the reader, one sentence each."""
    found = []
    if energy["energy_j"]["total"] is None:
        found.append(f"energy: {energy['coverage']:.1%} of the active and {energy['idle_coverage']:.1%} of the idle "
                     f"time of accelerators have a known power; below {LEAST_COVERAGE:.0%} there is no number: [power] "
                     "takes idle_w, prefill_w and decode_w of each accelerator")
    elif energy["energy_j"]["host"] is None:
        found.append("energy: of accelerators alone; [power] does not say host_w for all of them")
    return found


def _watts(pools: tuple[PoweredPool, ...]) -> _Watts:
    counts = [pool.places for pool in pools]

    def known(key: str) -> np.ndarray:
        return np.array([math.nan if pool.power is None else pool.power.measured(key) or math.nan for pool in pools])

    active = np.full((len(pools), 3), math.nan)         # time in no phase has no power
    active[:, PREFILL], active[:, DECODE] = known("prefill_w"), known("decode_w")
    nodes = np.array([math.nan if pool.nodes is None else pool.nodes for pool in pools])
    return _Watts(*(np.repeat(each, counts, axis=0) for each in (
        active, known("idle_w"), known("host_w") * nodes, known("pue"),
        np.array([pool.accelerators for pool in pools], np.int64))))


def _share(spent_ns: np.ndarray, watts: np.ndarray) -> float:
    """Return the share of the time with known power; 1 if there is none."""
    total = int(spent_ns.sum())
    return int(spent_ns[~np.isnan(watts)].sum()) / total if total else 1.0


def _of_the_building(kwh: np.ndarray | None, facts: PowerFacts) -> dict:
    """Return the energy of the building, its emissions and cost; None where not known or not given.

    kwh : (places, hours), NaN without a pue.
    """
    if kwh is None or np.isnan(kwh).any():
        return {"facility_kwh": None, "carbon_g": None, "electricity_cost": None, "electricity_currency": None}
    carbon, electricity = facts.carbon, facts.electricity
    return {"facility_kwh": _sum(kwh),
            "carbon_g": None if carbon is None else _sum(kwh * _of_places(facts.pools, "g_per_kwh")),
            "electricity_cost": electricity and _sum(kwh * _of_places(facts.pools, "per_kwh")),
            "electricity_currency": electricity and electricity.currency,
            **({} if carbon is None else {"carbon_source": f"{carbon.source}, {carbon.region}, {carbon.date}"}),
            **({} if electricity is None else {"electricity_source": f"{electricity.source}, {electricity.date}"})}


def _of_places(pools: tuple[PoweredPool, ...], key: str) -> np.ndarray:
    """Return a number of each place in each hour, float64 (places, hours), or (places, 1) where no pool has hours."""
    numbers = [getattr(pool, key) for pool in pools]
    hours = HOURS if any(isinstance(each, tuple) for each in numbers) else 1
    of_pools = np.array([np.broadcast_to(np.array(each, np.float64), hours) for each in numbers])
    return np.repeat(of_pools, [pool.places for pool in pools], axis=0)


def _sources(pools: tuple[PoweredPool, ...]) -> list[dict]:
    """Return the sources of the power figures, each once."""
    by_name = {pool.accelerator: pool.power for pool in pools if pool.power is not None}
    return [{"accelerator": name, "source": power.source, "host_source": power.host_source,
             "pue_source": power.pue_source} for name, power in by_name.items()]


def _sum(values: np.ndarray) -> float:
    return math.fsum(values.ravel().tolist())


def _ratio(value: float | None, over: float) -> float | None:
    return value / over if value is not None and over else None


def sentence(energy: dict) -> str:
    """Return the energy of the run, and of an output token."""
    total, tokens = energy["energy_j"]["total"], energy["joules_per_output_token"]
    if total is None:
        return f"not known: the power of {energy['coverage']:.1%} of the active time is"
    parts = [f"{total:,.1f} J"]
    parts += [] if energy["average_w"] is None else [f"{energy['average_w']:,.1f} W on average"]
    parts += [] if tokens is None else [f"{tokens:,.4f} J an output token"]
    parts += [] if energy["carbon_g"] is None else [f"{energy['carbon_g']:,.4f} g CO2"]
    if energy["electricity_cost"] is not None:
        parts.append(f"{energy['electricity_cost']:,.4f} {energy['electricity_currency']} of electricity")
    return ", ".join(parts)
