"""`toml`: the clients that the experiment file lists, [[workload.clients]], and their cohorts."""
import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault, did_you_mean
from simulator.workload.clients.cohorts import Cohort
from simulator.workload.clients.draw import MAX_REQUESTS, Bounds, Client, draw_clients
from simulator.workload.column_options import ColumnOptions
from simulator.workload.columns import Columns
from simulator.workload.drawing.arrivals import LEAST, Variation
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING

DEFAULT_PREFIX = 50             # tokens, as in BLIS: inference-sim, sim/workload/spec.go
MAX_OPENINGS = 10**7            # of slots; they take some seconds
OWN_MODES = ("timestamps", "concurrency")
Number = Annotated[int, Meta(ge=1, le=MAX_REQUESTS)]


class ClientArrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the requests of a client arrive; its rate is its share."""

    process: Annotated[Literal["poisson", "constant", "gamma", "weibull"], Meta(
        description="distribution of the gaps between arrivals")] = "poisson"
    cv: Annotated[Variation | None, Meta(description=(
        "gamma, weibull: standard deviation over mean of the gaps; default: 1"))] = None

    def __post_init__(self):
        if self.cv is not None and self.process not in ("gamma", "weibull"):
            raise ValueError(f"cv = {self.cv:g} is of process gamma or weibull, found {self.process}")


class ListedClient(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sender of requests, one of [[workload.clients]]."""

    id: Annotated[str, Meta(min_length=1, description="the client's name, also that of its random streams")]
    tenant: Annotated[str, Meta(description="for fairness and breakdowns")] = ""
    slo_class: Annotated[str, Meta(description="one of [[slo.classes]]")] = ""
    model: Annotated[str, Meta(description="the model that it requests")] = ""
    adapter: Annotated[str, Meta(description="LoRA adapter")] = ""
    priority: Annotated[int, Meta(ge=-2**31, le=2**31 - 1, description="of its requests, for the scheduler")] = 0
    deadline_s: Annotated[Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "time after each arrival at which it gives up"))] = None
    rate_share: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=(
        "the client's part of workload.rate_per_s, in any unit; default: 1"))] = None
    arrival: Annotated[ClientArrival, Meta(description="when its requests arrive")]
    prompt_tokens: Annotated[LengthChoice, Meta(description="prompt lengths, the prefix not counted")]
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    prefix_group: Annotated[str, Meta(description="prompts of one group share a prefix")] = ""
    prefix_length: Annotated[Annotated[int, Meta(ge=1, le=MAX_TOKENS, extra={"unit": "tokens"})] | None, Meta(
        description=f"prefix before prompt_tokens; default: {DEFAULT_PREFIX} in a group")] = None
    load: Annotated[Load | None, Meta(description="the client's own load; default: [workload.load]")] = None
    num_requests: Annotated[Number | None, Meta(description=(
        "requests of the client's own closed loop; default: as many as it sends before the end"))] = None

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
        if self.load.private_prefix_tokens:
            raise ValueError("load.private_prefix_tokens is of all requests, [workload.load]")
        if self.load.sessions_per_slot is not None:
            raise ValueError("load.sessions_per_slot: a client's requests are no sessions")
        if self.is_closed and (self.rate_share is not None or self.arrival != ClientArrival()):
            raise ValueError('rate_share and arrival are of a client at a rate, not of one whose own load has mode = '
                             '"concurrency"')

    @property
    def is_closed(self) -> bool:
        """Return whether the end of its requests releases others, in its own slots."""
        return self.load is not None and self.load.mode == "concurrency"

    @property
    def share(self) -> float:
        """Return its part of the rate, in the unit of all clients."""
        return 0.0 if self.is_closed else 1.0 if self.rate_share is None else self.rate_share


class ListedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Listed clients; their requests are drawn."""

    rate_per_s: Annotated[Annotated[float, Meta(ge=LEAST, le=1e9)] | None, Meta(description=(
        "total rate of all clients with rates, while all are present; each cohort counts as one client"))] = None
    num_requests: Annotated[Number | None, Meta(description=(
        "number of first requests of the clients with rates, or of the only client"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "all requests come before this time"))] = None
    clients: Annotated[tuple[ListedClient, ...], Meta(min_length=1, description="the senders of requests")]
    cohorts: Annotated[tuple[Cohort, ...], Meta(description=(
        "groups of equal clients that join and leave; clients in no cohort are always present"))] = ()

    def __post_init__(self):
        faults = [*_twice("clients", "id", self.clients), *_twice("cohorts", "name", self.cohorts)]
        faults += self._of_cohorts()
        if faults:
            raise InputErrors(faults)
        faults = [*self._of_bounds(), *self._of_closed_cohorts()]
        if faults:
            raise InputErrors(faults)

    @property
    def only(self) -> int | None:
        """Return the requests of the only client, if it has slots of its own.

        None: it has none, or there are other clients or cohorts, or the number is not given.
        """
        is_only = len(self.clients) == 1 and self.clients[0].is_closed and not self.cohorts
        return self.num_requests if is_only else None

    @property
    def steady_rate_per_s(self) -> float:
        """Return the total rate of clients that are always present."""
        shares = {True: 0.0, False: 0.0}
        for i, cohort in self.senders():
            shares[cohort is None] += self.clients[i].share
        return (self.rate_per_s or 0.0) * shares[True] / (sum(shares.values()) or 1.0)

    def senders(self) -> Iterator[tuple[int, Cohort | None]]:
        """Yield (client's index, cohort); None: a client that sends by itself."""
        for i, client in enumerate(self.clients):
            cohorts = [cohort for cohort in self.cohorts if cohort.client == client.id]
            yield from ((i, cohort) for cohort in cohorts or [None])

    def _of_cohorts(self) -> Iterator[str]:
        ids = {client.id: client for client in self.clients}
        for i, cohort in enumerate(self.cohorts):
            client = ids.get(cohort.client)
            if client is None:
                yield f'cohorts[{i}].client: there is no client "{cohort.client}"{did_you_mean(cohort.client, ids)}'
            elif not client.is_closed and client.share == 0:
                yield f'cohorts[{i}].client: "{client.id}" sends nothing, its rate_share is 0'

    def _of_bounds(self) -> Iterator[str]:
        closed = [client for client in self.clients if client.is_closed]
        shares = sum(client.share for client in self.clients)
        if len(closed) == len(self.clients):
            if self.rate_per_s is not None:
                yield "rate_per_s: no client comes at a rate"
            if self.num_requests is not None and self.only is None:
                yield "num_requests: no client comes at a rate; give each client its own"
        elif shares == 0:
            yield "clients: the rate_share of all together is 0, so that nobody comes"
        elif self.num_requests is None and self.duration_s is None and not all(
                cohort and cohort.ends_by_itself for i, cohort in self.senders() if self.clients[i].share):
            yield "give num_requests, duration_s, or both"
        endless = dict.fromkeys(
            f'"{self.clients[i].id}"' for i, cohort in self.senders() if self.clients[i].is_closed
            and (self.clients[i].num_requests or self.duration_s or self.only) is None
            and not (cohort and cohort.ends_by_itself))
        if endless:
            yield f"clients {', '.join(endless)}: give num_requests of each, or duration_s"

    def _of_closed_cohorts(self) -> Iterator[str]:
        """Refuse keys of cohorts that do not apply to members with slots of their own."""
        closed = {client.id: client.load for client in self.clients if client.is_closed}
        until_s, openings = math.inf if self.duration_s is None else self.duration_s, 0.0
        for i, cohort in enumerate(self.cohorts):
            if cohort.client not in closed:
                continue
            if cohort.window == "thin":
                yield (f'cohorts[{i}].window: expected "none" or "square", found "thin": members of "{cohort.client}" '
                       "have slots of their own, and no rate that could be less")
            elif cohort.diurnal is not None and math.isinf(min(until_s, cohort.leave_s)):
                yield f"cohorts[{i}].leave_s: missing; slots of members open again each period: give it, or duration_s"
            else:
                openings += cohort.population * closed[cohort.client].concurrency * cohort.num_openings(until_s)
        if openings > MAX_OPENINGS:
            yield f"cohorts: slots of members open up to {openings:.3g} times, at most {MAX_OPENINGS:.0e} are possible"


class Listed:
    """The clients of [[workload.clients]], each with random streams of its own."""

    Parameters = ListedParameters

    def __init__(self, parameters: ListedParameters):
        self.parameters = parameters

    def columns(self, streams: RandomStreams, options: ColumnOptions) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            See `draw_clients`; a rate is missing.
        """
        given = self.parameters
        total = sum(given.clients[i].share for i, _ in given.senders())
        if total and options.arrivals and given.rate_per_s is None:
            raise InputErrors([KeyFault("workload.rate_per_s: missing; expected the requests per second of all clients "
                                        "that come at rates, or a closed loop in [workload.load]")])
        self._check_loads(options)
        rate_per_s = (given.rate_per_s or 1.0) / (total or 1.0)
        count = given.num_requests if options.arrivals else given.num_requests or options.num_requests
        if count == 0 and total:
            raise InputErrors([KeyFault("workload.num_requests: missing; expected how many come in the closed loop of "
                                        "[workload.load], or duration_s")])
        is_guess = not options.arrivals and given.num_requests is None
        bounds = Bounds(count, given.duration_s, options.guess, is_guess, options.arrivals)
        clients = [client for i, cohort in given.senders() for client in self._clients(i, cohort, rate_per_s)]
        return replace(draw_clients(clients, bounds, streams), duration_s=given.duration_s)

    def _check_loads(self, options: ColumnOptions):
        """Refuse loads and cohorts that do not fit [workload.load]."""
        given = self.parameters
        faults = []
        if not options.arrivals and given.rate_per_s is not None:
            faults.append(KeyFault("workload.rate_per_s: [workload.load] says when requests come; leave it out"))
        if not options.arrivals:
            faults += [KeyFault(f'workload.clients[{i}].load.mode: expected "concurrency" beside the closed loop of '
                                '[workload.load], or no load, found "timestamps"')
                       for i, client in enumerate(given.clients) if client.load and not client.is_closed]
        loads = {client.id: client.load for client in given.clients}
        for i, cohort in enumerate(given.cohorts):
            if loads[cohort.client] is None and not options.arrivals:
                faults.append(KeyFault(
                    f"workload.cohorts[{i}]: members come at times of their own, but [workload.load] says when "
                    f'requests come; leave that out, or give client "{cohort.client}" a load of its own'))
            if loads[cohort.client] is None and options.has_ceiling and not math.isinf(cohort.leave_s):
                faults.append(KeyFault(
                    f"workload.cohorts[{i}].leave_s: a request may wait for [workload.load] max_in_flight until its "
                    f'member has left; give client "{cohort.client}" the ceiling, in a load of its own'))
        if faults:
            raise InputErrors(faults)

    def _clients(self, i: int, cohort: Cohort | None, rate_per_s: float) -> Iterator[Client]:
        """Yield a client, or the members of its cohort."""
        if cohort is None:
            yield self._client(i, rate_per_s)
            return
        member = self._client(i, rate_per_s / cohort.population)
        for number, presence in enumerate(cohort.presences()):
            yield dataclasses.replace(member, name=cohort.name, member=number, presence=presence)

    def _client(self, i: int, rate_per_s: float) -> Client:
        given = self.parameters.clients[i]
        prompt, output = given.prompt_tokens, given.output_tokens
        return Client(
            given.id, f"workload.clients[{i}].prompt_tokens",
            None if not given.share else process_of(given.arrival, given.share * rate_per_s),
            registry.load("length_distribution", prompt.distribution)(prompt.parameters),
            registry.load("length_distribution", output.distribution)(output.parameters),
            {column: getattr(given, column) for column in ("tenant", "slo_class", "model", "adapter")},
            given.prefix_group, (given.prefix_length or DEFAULT_PREFIX) if given.prefix_group else 0, given.priority,
            MISSING if given.deadline_s is None else round(given.deadline_s * 1e9), given.load,
            given.num_requests or self.parameters.only)


def _twice(key: str, name: str, listed: tuple) -> Iterator[str]:
    names = [getattr(each, name) for each in listed]
    yield from (f'{key}: two have the {name} "{each}"' for each in dict.fromkeys(names) if names.count(each) > 1)


def process_of(arrival: ClientArrival, rate_per_s: float):
    """Return the process of a client's arrivals."""
    process = registry.load("arrival", arrival.process)
    cv = {} if arrival.process in ("poisson", "constant") else {"cv": 1.0 if arrival.cv is None else arrival.cv}
    return process(process.Parameters(rate_per_s=rate_per_s, **cv))
