"""`toml`: the clients that the experiment file lists, [[workload.clients]]."""
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.clients.draw import MAX_REQUESTS, Client, draw_clients
from simulator.workload.columns import Columns
from simulator.workload.drawing.arrivals import Variation
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING
from simulator.workload.wanted import Wanted

DEFAULT_PREFIX = 50             # tokens, as BLIS has it: inference-sim, sim/workload/spec.go
OWN_MODES = ("timestamps", "concurrency")
Number = Annotated[int, Meta(ge=1, le=MAX_REQUESTS)]


class ClientArrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the requests of a client arrive; its rate is its share."""

    process: Annotated[Literal["poisson", "constant", "gamma", "weibull"], Meta(
        description="what draws the gaps between arrivals")] = "poisson"
    cv: Annotated[Variation | None, Meta(description=(
        "gamma, weibull: standard deviation over mean of the gaps; default: 1"))] = None

    def __post_init__(self):
        if self.cv is not None and self.process not in ("gamma", "weibull"):
            raise ValueError(f"cv = {self.cv:g} is of process gamma or weibull, found {self.process}")


class ListedClient(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who sends requests, one of [[workload.clients]]."""

    id: Annotated[str, Meta(min_length=1, description="names its random streams")]
    tenant: Annotated[str, Meta(description="for fairness and breakdowns")] = ""
    slo_class: Annotated[str, Meta(description="one of [[slo.classes]]")] = ""
    model: Annotated[str, Meta(description="that is asked for")] = ""
    adapter: Annotated[str, Meta(description="LoRA adapter")] = ""
    priority: Annotated[int, Meta(ge=-2**31, le=2**31 - 1, description="of its requests, for the scheduler")] = 0
    deadline_s: Annotated[Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "it gives up so long after each arrival"))] = None
    rate_share: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=(
        "its part of workload.rate_per_s, in any unit; default: 1"))] = None
    arrival: Annotated[ClientArrival, Meta(description="when its requests arrive")]
    prompt_tokens: Annotated[LengthChoice, Meta(description="prompt lengths, the prefix not counted")]
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    prefix_group: Annotated[str, Meta(description="prompts of one group begin alike")] = ""
    prefix_length: Annotated[Annotated[int, Meta(ge=1, le=MAX_TOKENS, extra={"unit": "tokens"})] | None, Meta(
        description=f"in front of prompt_tokens; default: {DEFAULT_PREFIX} in a group")] = None
    load: Annotated[Load | None, Meta(description="how its requests come; default: [workload.load]")] = None
    num_requests: Annotated[Number | None, Meta(description="of a closed loop of its own, which needs it")] = None

    def __post_init__(self):
        if self.prefix_length is not None and not self.prefix_group:
            raise ValueError("prefix_length takes a prefix_group")
        if self.num_requests is not None and not self.is_closed:
            raise ValueError('num_requests is of a client whose own load has mode = "concurrency"')
        if self.load is None:
            return
        if self.load.mode not in OWN_MODES:
            raise ValueError(f'load.mode = "{self.load.mode}": a client has {" or ".join(OWN_MODES)}; '
                             "others are of [workload.load]")
        if not math.isinf(self.load.grace_s) or not math.isinf(self.load.tree_idle_cap_s):
            raise ValueError("load.grace_s and load.tree_idle_cap_s are of all requests, [workload.load]")
        if self.is_closed and (self.rate_share is not None or self.arrival != ClientArrival()):
            raise ValueError('rate_share and arrival are of a client at a rate, not of one whose own load has mode = '
                             '"concurrency"')

    @property
    def is_closed(self) -> bool:
        """Say whether what ended lets its requests come, in slots of its own."""
        return self.load is not None and self.load.mode == "concurrency"

    @property
    def share(self) -> float:
        """Return its part of the rate, in the unit of all."""
        return 0.0 if self.is_closed else 1.0 if self.rate_share is None else self.rate_share


class ListedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients whose requests are drawn."""

    rate_per_s: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description=(
        "of all clients together that come at rates"))] = None
    num_requests: Annotated[Number | None, Meta(description=(
        "the first so many of the clients at rates; or of the only client"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "no request comes at or after this time"))] = None
    clients: Annotated[tuple[ListedClient, ...], Meta(min_length=1, description="who sends requests")]

    def __post_init__(self):
        ids = [client.id for client in self.clients]
        twice = next((each for each in ids if ids.count(each) > 1), None)
        if twice is not None:
            raise ValueError(f'clients: two have the id "{twice}"')
        closed = [client for client in self.clients if client.is_closed]
        if len(closed) < len(self.clients):
            self._check_rates()
        elif self.rate_per_s is not None:
            raise ValueError("rate_per_s: no client comes at a rate")
        endless = [f'"{client.id}"' for client in closed if client.num_requests is None]
        if endless and not (len(self.clients) == 1 and self.num_requests is not None):
            raise ValueError(f"clients {', '.join(endless)}: give num_requests of each; duration_s may end it earlier")
        if len(closed) == len(self.clients) > 1 and self.num_requests is not None:
            raise ValueError("num_requests: no client comes at a rate; give each client its own")

    def _check_rates(self):
        if sum(client.share for client in self.clients) == 0:
            raise ValueError("clients: the rate_share of all together is 0, so that nobody comes")
        if self.num_requests is None and self.duration_s is None:
            raise ValueError("give num_requests, duration_s, or both")


class Listed:
    """The clients of [[workload.clients]], each with random streams of its own."""

    Parameters = ListedParameters

    def __init__(self, parameters: ListedParameters):
        self.parameters = parameters

    def columns(self, streams: RandomStreams, wanted: Wanted) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            See `draw_clients`; a rate is missing.
        """
        given = self.parameters
        total = sum(client.share for client in given.clients)
        if total and wanted.arrivals and given.rate_per_s is None:
            raise InputErrors([KeyFault("workload.rate_per_s: missing; expected the requests per second of all clients "
                                        "that come at rates, or a closed loop in [workload.load]")])
        rate_per_s = (given.rate_per_s or 1.0) / (total or 1.0)
        num_requests, duration_s = given.num_requests, given.duration_s
        if not wanted.arrivals:         # the rates say who comes how often, not when
            self._check_loads()
            if total and num_requests is None:
                raise InputErrors([KeyFault("workload.num_requests: missing; expected how many come in the closed loop "
                                            "of [workload.load]; duration_s may end it earlier")])
            duration_s = None
        clients = [self._client(i, each, rate_per_s) for i, each in enumerate(given.clients)]
        return replace(draw_clients(clients, num_requests, duration_s, streams), duration_s=given.duration_s)

    def _check_loads(self):
        faults = [KeyFault(f'workload.clients[{i}].load.mode: expected "concurrency" beside the closed loop of '
                           '[workload.load], or no load, found "timestamps"')
                  for i, client in enumerate(self.parameters.clients) if client.load and not client.is_closed]
        if faults:
            raise InputErrors(faults)

    def _client(self, i: int, given: ListedClient, rate_per_s: float) -> Client:
        only = self.parameters.num_requests if len(self.parameters.clients) == 1 else None
        prompt, output = given.prompt_tokens, given.output_tokens
        return Client(
            given.id, f"workload.clients[{i}].prompt_tokens",
            None if not given.share else process_of(given.arrival, given.share * rate_per_s),
            registry.load("length_distribution", prompt.distribution)(prompt.parameters),
            registry.load("length_distribution", output.distribution)(output.parameters),
            {column: getattr(given, column) for column in ("tenant", "slo_class", "model", "adapter")},
            given.prefix_group, (given.prefix_length or DEFAULT_PREFIX) if given.prefix_group else 0, given.priority,
            MISSING if given.deadline_s is None else round(given.deadline_s * 1e9), given.load,
            given.num_requests or only if given.is_closed else None)


def process_of(arrival: ClientArrival, rate_per_s: float):
    """Return the process of a client's arrivals."""
    process = registry.load("arrival", arrival.process)
    cv = {} if arrival.process in ("poisson", "constant") else {"cv": 1.0 if arrival.cv is None else arrival.cv}
    return process(process.Parameters(rate_per_s=rate_per_s, **cv))
