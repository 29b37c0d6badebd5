"""`blis`: clients described by BLIS's workload YAML.

The rules are BLIS's: gaps and lengths are whole and at least 1, a rate is divided by shares. Random numbers are ours,
not those of Go's generators, which BLIS uses; the recorded workload of constant gaps and lengths agrees.
Source: inference-sim (BLIS) at f90a1e3a, sim/workload/generator.go, distribution.go, arrival.go, client.go, cohort.go.
"""
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace as with_fields

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.domain.slo_classes import PRIORITIES, UNKNOWN_PRIORITY
from simulator.errors import InputErrors
from simulator.workload.clients.blis_spec import OLD_CLASSES, Lengths, Sender, Spec, SpecCohort, read_spec
from simulator.workload.clients.draw import Bounds, Client, draw_clients
from simulator.workload.clients.listed import DEFAULT_PREFIX, ClientArrival, process_of
from simulator.workload.column_options import ColumnOptions
from simulator.workload.columns import Columns
from simulator.workload.drawing import lengths
from simulator.workload.drawing.cohorts import Windows, diurnal_duties, drain_duties
from simulator.workload.drawing.empirical import Empirical, EmpiricalParameters
from simulator.workload.limits import MAX_TOKENS, MISSING
from simulator.workload.reading.yaml_files import read_yaml

US = 1000                               # in nanoseconds
HOUR_US = 3_600_000_000
USER_TIMEOUT_US = 300_000_000           # of clients with concurrency and without a timeout
MOST_URGENT = max(PRIORITIES.values())
NEEDED = {"gaussian": ("mean", "std_dev", "min", "max"), "exponential": ("mean",), "lognormal": ("mu", "sigma"),
          "pareto_lognormal": ("alpha", "xm", "mu", "sigma", "mix_weight"), "constant": ("value",)}
BOUNDED = ("exponential", "lognormal")


class BlisClientsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload of BLIS; needs PyYAML, `pip install 'simulator[blis]'`."""

    path: Annotated[str, Meta(description="the YAML file", extra={"path": True})]
    upstream_compat: Annotated[bool, Meta(description=(
        "as BLIS: users think from the end in the engine on, not from the last token that they see"))] = False


class BlisClients:
    """Requests of the clients of a YAML file."""

    Parameters = BlisClientsParameters

    def __init__(self, parameters: BlisClientsParameters):
        self.path, self._is_upstream = parameters.path, parameters.upstream_compat

    def columns(self, streams: RandomStreams, options: ColumnOptions) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            Faults of the file, by key; features of the file that are not supported.
        """
        spec, given, faults = read_spec(read_yaml(self.path))
        drawn = [_distributions(place, each, faults) for place, each in given.items()]
        if faults:
            raise InputErrors([f"{self.path}: {fault}" for fault in faults])
        senders = list(given.values())
        windows = [_windows(each) for each in senders]
        clients = []
        for each, of_sender, own, share in zip(senders, drawn, windows, _shares(senders, windows), strict=True):
            clients += _members(each, _client(each, *of_sender, spec, share), own)
        duration_s = spec.horizon / 1e6 if spec.horizon else None
        last_s = duration_s if duration_s or None in windows else max(each.last_s for each in windows)
        columns = draw_clients(clients, Bounds(spec.num_requests or None, last_s, options.guess), streams)
        return with_fields(columns, duration_s=duration_s, from_engine=self._is_upstream, notes=_notes(spec, senders))


class WholeMicroseconds:
    """A process with gaps truncated to microseconds, and at least one."""

    def __init__(self, process):
        self._process, self.rate_per_s = process, process.rate_per_s

    def gaps_s(self, generator, first, count):
        """Return the gaps in seconds."""
        return np.maximum(np.trunc(self._process.gaps_s(generator, first, count) * 1e6), 1) / 1e6


class ParetoLognormal(lengths.Length):
    """A mixture: `mix_weight` of the lengths are Pareto's, the others log-normal."""

    def __init__(self, params: dict, bounds: lengths.Bounds):
        super().__init__(bounds)
        self._params = params

    def sample(self, generator, count):
        """Return lengths before rounding."""
        of = self._params
        pareto = of["xm"] * generator.random(count) ** (-1 / of["alpha"])
        lognormal = generator.lognormal(of["mu"], of["sigma"], count)
        return np.where(generator.random(count) < of["mix_weight"], pareto, lognormal)


def _windows(given: Sender) -> Windows | None:
    """Return when the members of a cohort send; None: always.

    All times are whole microseconds. If there are several patterns, their times are united.
    """
    if not isinstance(given, SpecCohort):
        return None
    spans_us = []
    if given.diurnal is not None:           # for the first day alone
        parts = diurnal_duties(given.diurnal.peak_hour, given.diurnal.peak_to_trough_ratio).parts
        spans_us += _square_us(0, HOUR_US, parts)
    if given.spike is not None:
        spans_us.append((given.spike.start_time_us, given.spike.start_time_us + given.spike.duration_us))
    if given.drain is not None:
        start_us = given.drain.start_time_us
        spans_us += [(0, start_us), *_square_us(
            start_us, max(given.drain.ramp_duration_us // 10, 1), drain_duties(0.0, 1.0).parts[:-1])]
    return Windows.of(US * np.array(spans_us)) if spans_us else None


def _square_us(begin_us: int, segment_us: int, parts: np.ndarray) -> Iterator[tuple[int, int]]:
    for i, part in enumerate(parts.tolist()):
        yield begin_us + i * segment_us, begin_us + i * segment_us + max(int(segment_us * part), 1)


def _shares(senders: list[Sender], windows: list[Windows | None]) -> Iterator[float]:
    """Yield each sender's part of the rate: its share over the shares of all senders with overlapping windows."""
    for each, own in zip(senders, windows, strict=True):
        total = sum(_share(other) for other, of_other in zip(senders, windows, strict=True)
                    if own is None or of_other is None or own.overlaps(of_other))
        yield _share(each) / (total or 1.0)


def _members(given: Sender, client: Client, windows: Windows | None) -> list[Client]:
    """Return the members of a cohort, or the client itself."""
    if not isinstance(given, SpecCohort):
        return [client]
    is_private = given.prefix_sharing == "per_member"
    return [replace(client, member=i, presence=windows,
                    prefix_group=f"{given.prefix_group}-{given.id}-{i}" if is_private else given.prefix_group)
            for i in range(given.population)]


def _distributions(place: str, client: Sender, faults: list[str]) -> tuple:
    found = []
    for key in ("input_distribution", "output_distribution"):
        try:
            found.append(_length_of(getattr(client, key)))
        except ValueError as error:
            faults.append(f"{place}.{key}: {error}")
            found.append(None)
    return tuple(found)


def _length_of(given: Lengths) -> lengths.Length:
    """Return a distribution of lengths.

    Raises ValueError for parameters that are missing, unknown or out of range.
    """
    params = given.params
    if given.type == "empirical":
        return _empirical(params)
    needed, known = NEEDED[given.type], NEEDED[given.type] + ("min", "max") * (given.type in BOUNDED)
    missing, unknown = [key for key in needed if key not in params], [key for key in params if key not in known]
    if missing or unknown:
        raise ValueError(f"{given.type} takes {', '.join(known)}; " + "; ".join(
            f"{what} {', '.join(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys))
    if any(not 0 <= value <= MAX_TOKENS for key, value in params.items() if key != "mu"):
        raise ValueError(f"expected numbers from 0 to {MAX_TOKENS}")
    bounds = {"min": max(1, round(params.get("min", 1))), "max": round(params.get("max", MAX_TOKENS))}
    if given.type == "constant":
        return lengths.Constant(lengths.ConstantParameters(tokens=max(1, round(params["value"]))))
    if given.type == "gaussian":
        return lengths.Normal(lengths.NormalParameters(mean=params["mean"], std=params["std_dev"], **bounds))
    if given.type == "exponential":
        return lengths.Exponential(lengths.ExponentialParameters(mean=params["mean"], **bounds))
    if given.type == "lognormal":       # mu and sigma are of the logarithm; ours are of the lengths
        mean = math.exp(params["mu"] + params["sigma"] ** 2 / 2)
        std = mean * math.sqrt(math.expm1(params["sigma"] ** 2))
        return lengths.Lognormal(lengths.LognormalParameters(mean=mean, std=std, **bounds))
    if not params["alpha"] > 0 or not params["xm"] > 0 or params["mix_weight"] > 1:
        raise ValueError("expected alpha and xm above 0, and mix_weight from 0 to 1")
    return ParetoLognormal(params, lengths.Bounds())


def _empirical(params: dict[str, float]) -> lengths.Length:
    if not params or any(not text.isdigit() for text in params):
        raise ValueError('empirical takes {"<tokens>": probability, ...}')
    if min(params.values()) < 0:
        raise ValueError("expected probabilities of 0 or more")
    return Empirical(EmpiricalParameters(
        values=tuple(map(int, params)), weights=tuple(params.values()), min=1))


def _share(client: Sender) -> float:
    """Return a client's part of the rate, in any unit."""
    return 0.0 if client.concurrency else 1.0 if client.rate_fraction is None else client.rate_fraction


def _client(given: Sender, prompt, output, spec: Spec, share: float) -> Client:
    slo_class = given.slo_class if spec.version == "2" else OLD_CLASSES.get(given.slo_class, given.slo_class)
    labels = {"tenant": given.tenant_id, "slo_class": slo_class, "model": given.model, "adapter": given.adapter}
    timeout_us = given.timeout if given.timeout is not None else USER_TIMEOUT_US if given.concurrency else 0
    client = Client(
        given.id, given.id, None, prompt, output, labels, given.prefix_group,
        (given.prefix_length or DEFAULT_PREFIX) if given.prefix_group else 0,
        MOST_URGENT - PRIORITIES.get(slo_class, UNKNOWN_PRIORITY), US * timeout_us if timeout_us else MISSING)
    if not given.concurrency:
        arrival = ClientArrival(process=given.arrival.process, cv=given.arrival.cv)
        process = process_of(arrival, spec.aggregate_rate * share / getattr(given, "population", 1))
        return replace(client, process=WholeMicroseconds(process))
    users = np.arange(given.concurrency)
    return replace(
        client, load=Load(mode="concurrency", concurrency=given.concurrency, think_time_s=given.think_time_us / 1e6),
        num_requests=spec.num_requests or None, opens_ns=US * (users * given.think_time_us // given.concurrency))


def _notes(spec: Spec, clients: list[Sender]) -> tuple[str, ...]:
    """Return notes on parts of the file that the requests lack."""
    notes = ["Random numbers are the simulator's, by the seed of the experiment; BLIS draws others for the same file."]
    if spec.goodput_slo_targets:
        notes.append("goodput_slo_targets of the file is not used: bounds are those of [slo].")
    if any(client.network for client in clients):
        notes.append("network of the clients is not used: BLIS calibrates with it alone.")
    return tuple(notes)
