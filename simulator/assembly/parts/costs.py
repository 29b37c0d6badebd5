"""Money and energy of a run, from [prices], [power], [carbon] and [electricity]."""
import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts.base import Fault, Part
from simulator.assembly.pool_prices import (
    cost_by_hour,
    emissions_of,
    energy_price_of,
    gpu_price_of,
    price_of,
)
from simulator.config.experiment import Experiment, Pool
from simulator.config.layers import Layers, Path, Source, read_toml
from simulator.core.paths import special
from simulator.domain.costs import (
    Carbon,
    Day24,
    Electricity,
    GramsPerKwh,
    Hour,
    PerGpuHour,
    PerKwh,
    Power,
    Price,
    mean_of,
)
from simulator.domain.facts import load_node
from simulator.errors import InputErrors, did_you_mean
from simulator.results.energy import PoweredPool, PowerFacts, energy_of, remarks
from simulator.results.money import Bill, PricedPool, cost_of
from simulator.results.paid_time import Rate
from simulator.results.power_meter import Metered, PowerMeter
from simulator.results.summary_keys import below, keys_of

TABLES = ("prices", "power", "carbon", "electricity")
LISTS = ("prices", "power")     # tables that may be given as the name of a file
DATED = ("prices", "carbon", "electricity")
# Key of a pool -> table of the number that it replaces.
TABLES_OF_KEYS = {"price_per_gpu_hour": "prices", "electricity_per_kwh": "electricity", "carbon_g_per_kwh": "carbon"}


class Costs(Part):
    """Money and energy of a run."""

    keys = {
        "pools[].cost_per_hour": Annotated[float, Meta(ge=0, le=1e9, description=(
            "cost of a replica per hour, in any currency"))],
        "pools[].price_per_gpu_hour": Annotated[PerGpuHour | Annotated[tuple[PerGpuHour, ...], Day24] | None, Meta(
            description="price of one accelerator for an hour where the pool is; 24 numbers: one for each hour of the "
            "day; default: that of [prices]")],
        "pools[].electricity_per_kwh": Annotated[PerKwh | Annotated[tuple[PerKwh, ...], Day24] | None, Meta(
            description="price of a kilowatt-hour where the pool is; 24 numbers: one for each hour of the day; "
            "default: that of [electricity]")],
        "pools[].carbon_g_per_kwh": Annotated[GramsPerKwh | Annotated[tuple[GramsPerKwh, ...], Day24] | None, Meta(
            description="grams of CO2 of a kilowatt-hour where the pool is; 24 numbers: one for each hour of the day; "
            "default: that of [carbon]")],
        "pools[].starts_at_hour": Annotated[Hour | None, Meta(description=(
            "hour of the day at simulated time 0 where the pool is, a time zone, for all its numbers by hour; default: "
            "that of each table"))],
        "prices": Annotated[dict[str, Price] | None, Meta(extra={"facts": "hardware"}, description=(
            "prices of accelerators by name, or a TOML file of prices; pools.cost_per_hour overrides them"))],
        "power": Annotated[dict[str, Power] | None, Meta(extra={"facts": "hardware"}, description=(
            "power draw of accelerators by name, or a TOML file of it; absent: energy is not computed"))],
        "carbon": Annotated[Carbon | None, Meta(description="emissions per kilowatt-hour")],
        "electricity": Annotated[Electricity | None, Meta(description="price of a kilowatt-hour")]}
    summary_keys = {
        **keys_of(cost__currency="of [prices]"),
        **keys_of("currency", cost__total="of the run, or of the measured window, as all of cost and energy",
                  cost__per_hour="total over the hours of the run",
                  cost__cost_per_million_output_tokens="at output_throughput",
                  cost__cost_per_million_tokens="at total_token_throughput",
                  cost__cost_per_thousand_requests="at request_throughput",
                  cost__cost_per_good_request="at request_goodput"),
        **below("cost.prices[]", {**keys_of(accelerator="name", source="of the price", date="of the price"),
                                  **keys_of("currency/h", per_gpu_hour="as given; 24 numbers: by hour")}),
        **keys_of("J",
                  energy__energy_j__accelerator_active="computing accelerators; null: power not known for enough of it",
                  energy__energy_j__accelerator_idle="idle accelerators", energy__energy_j__host="of hosts",
                  energy__energy_j__total="of all", energy__joules_per_output_token="of all"),
        **keys_of(energy__coverage="share of the active time with a known power",
                  energy__idle_coverage="share of the idle time with a known power"),
        **keys_of("W", energy__average_w="over the run", energy__active_w_per_accelerator="while it computed"),
        **keys_of("kWh", energy__kwh="of all", energy__facility_kwh="with pue"),
        **keys_of("g", energy__carbon_g="CO2, by [carbon]"),
        **keys_of("currency", energy__electricity_cost="by [electricity]"),
        **keys_of(energy__electricity_currency="of [electricity]", energy__carbon_source="as given",
                  energy__electricity_source="as given"),
        **below("energy.powers[]", keys_of(accelerator="name", source="of its power",
                                           host_source="of the host's power", pue_source="of the pue"))}
    is_listening, meter = False, None

    @staticmethod
    def unfold(layers: Layers) -> list[str]:
        """See Part: names of files are replaced by their content, and TOML dates by texts."""
        faults = []
        for name in LISTS:
            value = layers.data.get(name)
            if isinstance(value, str):
                source = layers.source_of((name,))
                file = os.path.normpath(os.path.join(source.folder, os.path.expanduser(value)))
                del layers.data[name]
                try:
                    if kind := special(os.path.abspath(file)):
                        raise InputErrors([f"{source.label}: {name}: expected a table, or a TOML file, found {kind}"])
                    layers.merge({name: read_toml(file)}, Source(file, os.path.dirname(file)))
                except InputErrors as errors:
                    faults += errors.faults
        for name in DATED:
            if isinstance(table := layers.data.get(name), dict):
                _write_dates(table)
        return faults

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        if any(sections[name] is missing for name in TABLES):
            return
        places = {("pools", i): pool for i, pool in enumerate(sections["pools"])}
        yield from _of_places(sections, TABLES_OF_KEYS)
        if not places:
            if missing in (sections["hardware"], sections["topology"]):
                return
            places = {(): _Whole(sections)}
        if sections["prices"] is not None:
            yield from _prices(sections["prices"], places)
        if sections["power"] is not None:
            yield from _power(sections["power"], places)
            if sections["carbon"] is not None or sections["electricity"] is not None:
                yield from _without_pue(sections["power"], places)
        for name in ("carbon", "electricity"):
            if sections[name] is not None and sections["power"] is None:
                yield (name,), "counts kilowatt-hours, which [power] gives: missing table [power]"

    def pool(self, pool):
        """Return a pool with its cost_per_hour, by [prices] unless given."""
        price = price_of(self.experiment, pool)
        if price is None:
            return pool
        return replace(pool, cost_per_hour=mean_of(gpu_price_of(pool, price)) * pool.topology.accelerators)

    def listener(self, is_of_window: bool) -> PowerMeter | None:
        self.is_listening, power = True, power_of(self.experiment)
        self.meter = power and PowerMeter(
            tuple(map(_metered, self.experiment.all_pools())), power.first_hour, is_of_window)
        return self.meter

    def summary(self, run, summary: dict) -> dict:
        """See Part; nothing for runs that are repeated to vary their times."""
        if not self.is_listening:
            return {}
        entries, bill = {}, bill_of(self.experiment)
        if bill is not None:
            entries["cost"] = cost_of(run, bill, summary)
        if self.meter is not None:
            entries["energy"] = energy_of(run, power_of(self.experiment), self.meter, summary["total_output_tokens"])
            entries["diagnosis"] = remarks(entries["energy"])
        free = [pool.name for pool in (*self.experiment.all_pools(), *self.experiment.encode_pools())
                if not pool.cost_per_hour] if bill is not None else []
        if free:
            entries["diagnosis"] = [*entries.get("diagnosis", ()), (
                f"cost: replicas of pool {', '.join(sorted(free))} cost nothing: neither cost_per_hour nor [prices] "
                "has their price, so that costs are those of the other pools alone")]
        return entries


def bill_of(experiment: Experiment) -> Bill | None:
    """Return the prices of an experiment's replicas; None: no price is given."""
    pools, encode = experiment.all_pools(), experiment.encode_pools()
    if not any(pool.cost_per_hour for pool in (*pools, *encode)):
        return None
    by_price = [pool.hardware.name for pool in experiment.pools or (experiment,)
                if pool.hardware is not None and not getattr(pool, "cost_per_hour", 0.0)]
    prices = {name: experiment.prices[name] for name in by_price} if experiment.prices else {}
    return Bill(tuple(PricedPool(pool.places, Rate(pool.cost_per_hour / pool.topology.data_parallel,
                                                   cost_by_hour(experiment, pool))) for pool in pools),
                sum(pool.cost_per_hour * pool.at_start for pool in encode), tuple(prices.items()))


def power_of(experiment: Experiment) -> PowerFacts | None:
    """Return the power draw of an experiment; None without [power]."""
    if experiment.power is None:
        return None
    pools = tuple(map(partial(_powered, experiment), experiment.all_pools()))
    is_by_hour = any(isinstance(numbers, tuple) for pool in pools for numbers in (pool.g_per_kwh, pool.per_kwh))
    return PowerFacts(pools, experiment.carbon, experiment.electricity, is_by_hour)


def _powered(experiment: Experiment, pool: Pool) -> PoweredPool:
    name, topology = pool.hardware.name if pool.hardware else "", pool.topology
    accelerators = topology.accelerators // topology.data_parallel
    nodes = accelerators / load_node(topology.node).num_accelerators if topology.node else None
    return PoweredPool(name, pool.places, accelerators, experiment.power.get(name), nodes,
                       emissions_of(experiment, pool), energy_price_of(experiment, pool))


def _metered(pool: Pool) -> Metered:
    topology = pool.topology
    backend = registry.load("latency", pool.latency.backend)
    phase_ns = getattr(backend, "phase_ns", None)
    return Metered(pool.places, topology.tensor_parallel * topology.prefill_context_parallel,
                   phase_ns and partial(phase_ns, pool.latency.parameters))


def _write_dates(table: dict[str, Any]) -> None:
    for key, value in table.items():
        if isinstance(value, dict):
            _write_dates(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            table[key] = value.isoformat()


class _Whole:
    """An experiment without pools, seen as a single pool."""

    cost_per_hour, role, price_per_gpu_hour = 0.0, "both", None

    def __init__(self, sections: Mapping[str, Any]):
        self.hardware, self.topology = sections["hardware"], sections["topology"]


def _prices(prices: Mapping[str, Any], places: Mapping[Path, Any]) -> Iterator[Fault]:
    first = next(iter(prices), None)
    for name, price in prices.items():
        if price.currency != prices[first].currency:
            yield ("prices", name, "currency"), (
                f'expected "{prices[first].currency}", as for {first}, found "{price.currency}": costs are added up')
    unpriced = {path: pool for path, pool in places.items() if not pool.cost_per_hour}
    if not unpriced:
        yield ("prices",), "no effect: every pool has a cost_per_hour, which overrides it; leave it out"
    for path, pool in unpriced.items():
        if pool.role == "encode" and isinstance(_gpu_price(prices, pool), tuple):
            yield (*path, "role"), ('expected no encode pool with a price by hour, found "encode": give the pool a '
                                    "cost_per_hour")
        if pool.hardware is None:
            yield (*path, "hardware"), "missing table; [prices] needs the name of the accelerator"
        elif pool.hardware.name not in prices:
            other = ", or pools.cost_per_hour" if path else ""
            yield ("prices",), (f'no price of "{pool.hardware.name}", which {_who(path, pool)} runs on'
                                f"{did_you_mean(pool.hardware.name, prices)}: give it{other}")


def _gpu_price(prices: Mapping[str, Any], pool: Any) -> Any:
    """Return the price of an accelerator of a pool, by hour or not; None: there is none."""
    price = prices.get(pool.hardware and pool.hardware.name)
    return price and (pool.price_per_gpu_hour or price.per_gpu_hour)


def _of_places(sections: Mapping[str, Any], tables: Mapping[str, str]) -> Iterator[Fault]:
    """Yield faults of the keys by which a pool replaces numbers of tables."""
    for i, pool in enumerate(sections["pools"]):
        for key, table in tables.items():
            if getattr(pool, key) is not None and sections[table] is None:
                yield ("pools", i, key), f"replaces a number of [{table}]: missing table [{table}]"
        if pool.price_per_gpu_hour is not None and pool.cost_per_hour:
            yield ("pools", i, "price_per_gpu_hour"), "no effect: the pool has a cost_per_hour; give one of the two"
        if pool.starts_at_hour is not None and not any(
                isinstance(numbers, tuple) for numbers in _numbers_of(sections, pool)):
            yield ("pools", i, "starts_at_hour"), "no effect: no price and no emissions of the pool differ by hour"


def _numbers_of(sections: Mapping[str, Any], pool: Any) -> tuple:
    """Return the prices and emissions of a pool, by hour or not; None where not given."""
    carbon, electricity = sections["carbon"], sections["electricity"]
    return (None if pool.cost_per_hour else _gpu_price(sections["prices"] or {}, pool),
            electricity and (pool.electricity_per_kwh or electricity.per_kwh),
            carbon and (carbon.g_per_kwh if pool.carbon_g_per_kwh is None else pool.carbon_g_per_kwh))


def _power(power: Mapping[str, Any], places: Mapping[Path, Any]) -> Iterator[Fault]:
    for path, pool in places.items():
        if pool.role == "encode":
            yield (*path, "role"), ('expected no encode pool with [power], found "encode": the power draw of encoders '
                                    "is unknown")
    names = {path: pool.hardware and pool.hardware.name for path, pool in places.items()}
    if not any(name in power for name in names.values()):
        runs_on = ", ".join(f'"{name}"' for name in dict.fromkeys(names.values()) if name) or "no accelerator by name"
        yield ("power",), f"expected the power draw of the experiment's accelerators, {runs_on}"
    for path, pool in places.items():
        own = power.get(names[path])
        if own is not None and own.measured("host_w") and pool.topology.node is None:
            yield (*path, "topology", "node"), (
                f"missing; power.{names[path]}.host_w is per node, and the node type gives a replica's share of a node")


def _without_pue(power: Mapping[str, Any], places: Mapping[Path, Any]) -> Iterator[Fault]:
    for name in dict.fromkeys(pool.hardware.name for pool in places.values() if pool.hardware is not None):
        if name in power and power[name].pue is None:
            yield ("power", name, "pue"), ("missing; [carbon] and [electricity] count the power of the building: "
                                           "expected a number >= 1, 1.0 for the machines alone")


def _who(path: Path, pool: Any) -> str:
    return f'pool "{pool.name}"' if path else "the experiment"
