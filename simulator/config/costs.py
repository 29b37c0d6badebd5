"""[prices], [power], [carbon] and [electricity]: files that hold them, and their contradictions."""
import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any

from simulator.config.layers import Layers, Path, Source, read_toml
from simulator.core.paths import special
from simulator.errors import InputErrors, did_you_mean

Fault = tuple[Path, str]

LISTS = ("prices", "power")     # tables that may be given as the name of a file
DATED = ("prices", "carbon", "electricity")


def unfold(layers: Layers) -> list[str]:
    """Replace names of files by their content, and TOML dates by texts.

    Returns
    -------
    list
        Faults of the files.
    """
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


def _write_dates(table: dict[str, Any]) -> None:
    for key, value in table.items():
        if isinstance(value, dict):
            _write_dates(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            table[key] = value.isoformat()


def cost_faults(sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield the faults of [prices], [power], [carbon] and [electricity].

    sections, missing : as in `checks.check_all`.
    """
    if any(sections[name] is missing for name in ("prices", "power", "carbon", "electricity")):
        return
    places = {("pools", i): pool for i, pool in enumerate(sections["pools"])}
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


class _Whole:
    """An experiment without pools, seen as a single pool."""

    cost_per_hour, role = 0.0, "both"

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
        if pool.hardware is None:
            yield (*path, "hardware"), "missing table; [prices] needs the name of the accelerator"
        elif pool.hardware.name not in prices:
            other = ", or pools.cost_per_hour" if path else ""
            yield ("prices",), (f'no price of "{pool.hardware.name}", which {_who(path, pool)} runs on'
                                f"{did_you_mean(pool.hardware.name, prices)}: give it{other}")


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
