"""Keys of BLIS's workload YAML, accepted and refused ones.

Source: inference-sim (BLIS) at f90a1e3a, sim/workload/spec.go, cohort.go; version 2, and version 1, which has other
names for SLO classes.
"""
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

OLD_CLASSES = {"realtime": "critical", "interactive": "standard"}       # version 1: version 2
NOT_DRAWN = {       # keys of a client: why they are refused
    "lifecycle": "clients that come and go are not drawn; cohorts are",
    "multimodal": "tokens of images, audio and video are not drawn",
    "reasoning": "sessions of several turns are not drawn from BLIS's files; export them as TraceV2",
    "slo_target_us": "bounds are those of [slo] and its classes",
}
NOT_READ = {        # keys of the file: why they are refused
    "servegen_data": 'ServeGen\'s folders are read by format = "servegen"',
    "inference_perf": "workloads of inference-perf are not drawn",
}
Micros = Annotated[int, Meta(ge=0, le=9 * 10**15)]
Span = Annotated[int, Meta(ge=1, le=9 * 10**15)]        # of microseconds
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Arrival(msgspec.Struct, forbid_unknown_fields=True):
    """`arrival` of a client."""

    process: Literal["poisson", "gamma", "weibull", "constant"] = "poisson"
    cv: Annotated[float, Meta(ge=0.001, le=100)] | None = None
    shape: float | None = None
    scale: float | None = None


class Lengths(msgspec.Struct, forbid_unknown_fields=True):
    """`input_distribution` and `output_distribution` of a client."""

    type: Literal["gaussian", "exponential", "lognormal", "pareto_lognormal", "constant", "empirical"]
    params: dict[str, float] = {}
    file: str = ""


class Sender(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Keys that `clients` and `cohorts` have in common."""

    id: Annotated[str, Meta(min_length=1)]
    input_distribution: Lengths
    output_distribution: Lengths
    tenant_id: str = ""
    slo_class: str = ""
    model: str = ""
    rate_fraction: Annotated[float, Meta(gt=0)] | None = None
    arrival: Arrival = msgspec.field(default_factory=Arrival)
    prefix_group: str = ""
    prefix_length: Tokens | None = None
    streaming: bool = False
    network: dict | None = None
    timeout: Micros | None = None
    closed_loop: bool | None = None
    multimodal: Any = None
    reasoning: Any = None
    slo_target_us: Any = None


class SpecClient(Sender, forbid_unknown_fields=True, kw_only=True):
    """One of `clients`."""

    adapter: str = ""
    concurrency: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    think_time_us: Micros = 0
    lifecycle: Any = None


class SpecDiurnal(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`diurnal` of a cohort."""

    peak_hour: Annotated[int, Meta(ge=0, le=23)]
    peak_to_trough_ratio: Annotated[float, Meta(ge=1)]


class SpecSpike(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`spike` of a cohort."""

    start_time_us: Micros = 0
    duration_us: Span
    trace_rate: Any = None


class SpecDrain(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`drain` of a cohort."""

    start_time_us: Micros = 0
    ramp_duration_us: Span


class SpecCohort(Sender, forbid_unknown_fields=True, kw_only=True):
    """One of `cohorts`: members at a rate."""

    population: Annotated[int, Meta(ge=1, le=100_000)]
    prefix_sharing: Literal["", "shared", "per_member"] = ""
    diurnal: SpecDiurnal | None = None
    spike: SpecSpike | None = None
    drain: SpecDrain | None = None
    adapter: ClassVar[str] = ""
    concurrency: ClassVar[int] = 0
    think_time_us: ClassVar[int] = 0
    lifecycle: ClassVar[None] = None


class Spec(msgspec.Struct, forbid_unknown_fields=True):
    """The file."""

    clients: list[dict] = []
    cohorts: list[dict] = []
    version: Literal["", "1", "2"] = ""
    seed: int | None = None
    category: str = ""
    aggregate_rate: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    horizon: Micros = 0
    num_requests: Annotated[int, Meta(ge=0, le=10**9)] = 0
    goodput_slo_targets: dict | None = None
    servegen_data: Any = None
    inference_perf: Any = None


def read_spec(data: Any) -> tuple[Spec | None, dict[str, SpecClient | SpecCohort], list[str]]:
    """Return the file's content, clients and cohorts by place, and every fault.

    Places are such as `clients[0]`, faults `key: message`.
    """
    faults = []
    try:
        spec = msgspec.convert(data, Spec)
    except msgspec.ValidationError as error:
        return None, {}, [_said(error, "")]
    senders = {}
    for key, kind in (("clients", SpecClient), ("cohorts", SpecCohort)):
        for i, each in enumerate(getattr(spec, key)):
            place = f"{key}[{i}]"
            try:
                senders[place] = msgspec.convert(each, kind)
                faults += [f"{place}{fault}" for fault in _faults_of(senders[place])]
            except msgspec.ValidationError as error:
                faults.append(_said(error, place))
    faults += [f"{key}: {why}" for key, why in NOT_READ.items() if getattr(spec, key)]
    if not spec.clients and not spec.cohorts and not faults:
        faults.append("clients: expected one or more, or cohorts")
    faults += _faults_together(spec, list(senders.values()))
    return spec, senders, faults


def _said(error: msgspec.ValidationError, place: str) -> str:
    """Return msgspec's message with the key in front: `Expected ... - at `$.a.b`` becomes `a.b: expected ...`."""
    text, _, where = str(error).rpartition(" - at `$")
    if not text:
        text, where = str(error), ""
    key = (place + where.rstrip("`")).removeprefix(".")
    text = text[0].lower() + text[1:]
    return f"{key}: {text}" if key else text


def _faults_of(client: SpecClient | SpecCohort) -> Iterator[str]:
    for key, why in NOT_DRAWN.items():
        if getattr(client, key):
            yield f".{key}: {why}"
    if getattr(getattr(client, "spike", None), "trace_rate", None) is not None:
        yield ".spike.trace_rate: rates of windows are not read"
    if getattr(client, "prefix_sharing", "") and not client.prefix_group:
        yield ".prefix_sharing: it takes a prefix_group"
    if client.concurrency and client.rate_fraction is not None:
        yield ": expected rate_fraction or concurrency, found both"
    if client.think_time_us and not client.concurrency:
        yield ".think_time_us: it takes concurrency"
    if client.closed_loop and not client.concurrency:
        yield ".closed_loop: it takes sessions, which are not drawn, or concurrency"
    if client.arrival.shape is not None or client.arrival.scale is not None:
        yield ".arrival: shape and scale are not read; cv tells the shape, and the rate the scale"
    if client.arrival.cv is not None and client.arrival.process in ("poisson", "constant"):
        yield f".arrival.cv: it is of gamma and weibull, found {client.arrival.process}"
    for key in ("input_distribution", "output_distribution"):
        if getattr(client, key).file:
            yield f".{key}.file: files of lengths are not read; give params"


def _faults_together(spec: Spec, clients: list[SpecClient | SpecCohort]) -> Iterator[str]:
    ids = [client.id for client in clients]
    for name in dict.fromkeys(each for each in ids if ids.count(each) > 1):
        yield f'clients: two have the id "{name}"'
    if len({bool(client.slo_class) for client in clients}) > 1:
        yield "clients: expected all with a slo_class, or none"
    users = [client for client in clients if client.concurrency]
    if len(users) < len(clients) and not spec.aggregate_rate:
        yield "aggregate_rate: expected more than 0; rates of windows are not read"
    if not spec.num_requests and not spec.horizon:
        yield "num_requests: expected more than 0, or a horizon"
    if users and len(clients) > 1 and spec.num_requests:
        yield ("num_requests: expected none, but a horizon, or one client alone: what users of concurrency and others "
               "share as they come is not known before")
