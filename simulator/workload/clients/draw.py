"""Requests of clients: each client draws its requests from random streams of its own."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import FIRST_GUESS
from simulator.workload.columns import LABELS, Clients, Columns, Prompts, nearest, reordered, stream_of
from simulator.workload.drawing.arrivals import arrival_times_s
from simulator.workload.drawing.cohorts import ALWAYS, Presence, Windows
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING

MAX_REQUESTS = 10**9


class Bounds(NamedTuple):
    """Bounds on the requests of all clients.

    num_requests : number of first requests of clients with rates; None: all before `duration_s`.
    duration_s : all arrivals are before it; None: no end.
    guess : requests for each slot of a closed loop that only its end bounds, see `ColumnOptions`.
    is_guess : `num_requests` is a guess, too.
    has_times : False: rates set only the clients' shares of all requests; a load sets the times.
    """

    num_requests: int | None
    duration_s: float | None
    guess: int = FIRST_GUESS
    is_guess: bool = False
    has_times: bool = True

    @property
    def until_s(self) -> float:
        """Return the end; inf: there is none."""
        return inf if self.duration_s is None else self.duration_s


@dataclass(frozen=True)
class Client:
    """A sender of requests.

    name : identifies its random streams.
    place : its name in messages.
    process : its arrivals at the rate of its share, while it is busy; None: it has no rate.
    prompt_tokens, output_tokens : distributions of lengths; the prefix of its group is not among the first.
    labels : by column, where it has one.
    prefix_group : prompts of one group share a prefix; "": nothing is shared.
    timeout_ns : time after each arrival at which it gives up; MISSING: never.
    load : its own; None: [workload.load].
    num_requests : for a load without times; None: all that it sends until its end.
    opens_ns : when its slots open, from its first presence on; None: as its load says.
    member : its number in the cohort `name`; None: it is in no cohort.
    presence : when it is present; None: always.
    """

    name: str
    place: str
    process: Any
    prompt_tokens: Any
    output_tokens: Any
    labels: dict[str, str] = field(default_factory=dict)
    prefix_group: str = ""
    prefix_tokens: int = 0
    priority: int = 0
    timeout_ns: int = MISSING
    load: Load | None = None
    num_requests: int | None = None
    opens_ns: np.ndarray | None = None
    member: int | None = None
    presence: Presence | Windows | None = None

    @property
    def is_closed(self) -> bool:
        """Return whether the end of its requests releases others, in its own slots."""
        return self.load is not None and self.load.mode == "concurrency"

    @property
    def is_guess(self) -> bool:
        """Return whether only its end bounds its requests."""
        return self.is_closed and self.num_requests is None

    def stream(self, purpose: str) -> str:
        """Return the name of its random stream for one purpose."""
        return stream_of(self.name, purpose) if self.member is None else f"cohort/{purpose}/{self.member}/{self.name}"

    def due(self, until_s: float) -> float:
        """Return the mean number of requests that arrive at its rate before a time."""
        if self.process is None:
            return 0.0
        return self.process.rate_per_s * (until_s if self.presence is None else self.presence.busy_s(until_s))

    def arrivals_s(self, streams: RandomStreams, until_s: float) -> np.ndarray:
        """Return when the requests of its rate arrive, before a time."""
        if self.process is None:
            return np.empty(0)
        generator = streams.generator(self.stream("arrivals"))
        if self.presence is not None:
            return self.presence.arrivals_s(self.process, generator, until_s)
        return arrival_times_s(self.process, generator, None, until_s)

    def stays_ns(self, until_s: float) -> np.ndarray | None:
        """Return the intervals with its own slots open, int64 (w, 2); None: always.

        If requests come at times of their own, a request may wait for a slot until the client leaves.
        """
        if self.presence is None or self.load is None:
            return None
        return (self.presence if self.is_closed else self.presence._replace(duties=ALWAYS)).stays_ns(until_s)


def draw_clients(clients: Sequence[Client], bounds: Bounds, streams: RandomStreams) -> Columns:
    """Return the requests of all clients by arrival, then by client.

    Requests without arrival times come first.

    Raises
    ------
    InputErrors
        No request, too many, too late, or with a prompt that is empty or too long.
    """
    arrivals_ns = _arrivals(clients, bounds, streams)
    stays_ns = [client.stays_ns(bounds.until_s) for client in clients]
    for i, client in enumerate(clients):
        if client.is_closed and (stays_ns[i] is None or len(stays_ns[i])):
            count = client.num_requests or bounds.guess * client.load.concurrency
            _check_number(count, f"{client.load.concurrency} slots are")
            arrivals_ns[i] = np.zeros(count, np.int64)
    codes = np.repeat(np.arange(len(clients)), [len(each) for each in arrivals_ns])
    arrival_ns = np.concatenate(arrivals_ns)
    if not len(codes):
        raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {bounds.until_s:g} s")])
    prompt_tokens, output_tokens = _lengths(clients, np.bincount(codes, minlength=len(clients)), streams)
    prefix_tokens = np.array([client.prefix_tokens for client in clients])[codes]
    columns = Columns(
        arrival_ns, prompt_tokens + prefix_tokens, output_tokens,
        priority=np.array([client.priority for client in clients])[codes],
        timeout_ns=np.array([client.timeout_ns for client in clients])[codes],
        labels=_labels(clients, codes), prompts=_prompts(clients, codes, prompt_tokens, prefix_tokens),
        clients=_own_loads(clients, codes, stays_ns))
    order = np.argsort(arrival_ns, kind="stable")
    return replace(reordered(columns, order), request_ids=_ids(clients, codes[order], bounds.is_guess))


def _arrivals(clients: Sequence[Client], bounds: Bounds, streams: RandomStreams) -> list[np.ndarray]:
    """Return when the requests of each client arrive, ns; clients without a process have none."""
    num_requests, last_s = bounds.num_requests, bounds.until_s if bounds.has_times else inf
    rate_per_s = sum(client.process.rate_per_s for client in clients if client.process is not None)
    if rate_per_s == 0:
        return [np.empty(0, np.int64) for _ in clients]
    until_s = last_s
    if num_requests is not None:        # usually enough; a longer draw begins with the same arrivals
        until_s = min(1.1 * num_requests / rate_per_s + 10 / rate_per_s, last_s)
    while True:
        due = sum(client.due(until_s) for client in clients)
        _check_number(due, f"{until_s:g} s at {rate_per_s:g} requests/s are")
        if MAX_TIME_NS < until_s * 1e9 < inf:
            raise InputErrors([KeyFault(
                f"workload.rate_per_s: the last request arrives after {MAX_TIME_NS / 1e9:g} s")])
        times_s = [client.arrivals_s(streams, until_s) for client in clients]
        count = sum(map(len, times_s))
        if num_requests is None or count >= num_requests or until_s == last_s:
            break
        if last_s == inf and sum(client.due(inf) for client in clients) <= due:
            raise InputErrors([KeyFault(f"workload.num_requests: expected at most the {count} that come before all "
                                        f"cohorts have left, or duration_s beside it, found {num_requests}")])
        until_s = min(2 * until_s, last_s)
    return _first(times_s, num_requests)


def _check_number(number: float, what: str) -> None:
    if number > MAX_REQUESTS:
        raise InputErrors([KeyFault(f"workload.duration_s: {what} more than {MAX_REQUESTS} requests; give num_requests "
                                    "or a lower rate")])


def _ids(clients: Sequence[Client], codes: np.ndarray, is_guess: bool) -> np.ndarray | None:
    """Return request numbers that do not depend on the size of a guess; None: nothing was guessed.

    Numbers of open-ended clients follow all others, round-robin over clients; all clients at rates count as one. So
    draws by id do not change.
    """
    is_open = np.array([client.is_guess or (is_guess and not client.is_closed) for client in clients])
    if not is_open.any():
        return None
    who = np.array([code if client.is_closed else len(clients) for code, client in enumerate(clients)])
    taking, place = np.unique(who[is_open]), np.searchsorted(np.unique(who[is_open]), who)[codes]
    is_open, who = is_open[codes], who[codes]
    order = np.argsort(who, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(who[order]) != 0))
    turn = np.empty(len(codes), np.int64)
    turn[order] = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
    return np.where(is_open, np.sum(~is_open) + turn * len(taking) + place, np.cumsum(~is_open) - 1)


def _first(times_s: list[np.ndarray], count: int | None) -> list[np.ndarray]:
    """Return the first `count` of all times, in ns, still by client."""
    codes = np.repeat(np.arange(len(times_s)), [len(each) for each in times_s])
    order = np.argsort(np.concatenate(times_s), kind="stable")[:count]
    kept = np.bincount(codes[order], minlength=len(times_s))
    return [nearest(each[:number] * 1e9) for each, number in zip(times_s, kept.tolist(), strict=True)]


def _lengths(clients: Sequence[Client], counts: np.ndarray, streams: RandomStreams) -> tuple[np.ndarray, np.ndarray]:
    """Return prompt and output lengths, client by client."""
    prompts, outputs = [], []
    for client, count in zip(clients, counts.tolist(), strict=True):
        drawn = client.prompt_tokens.draw(streams.generator(client.stream("prompt_tokens")), count)
        if count and drawn.min() + client.prefix_tokens < 1:
            raise InputErrors([KeyFault(f"{client.place}: draws a prompt of 0 tokens; raise its min to 1 or more")])
        if count and drawn.max() + client.prefix_tokens > MAX_TOKENS:
            raise InputErrors([KeyFault(
                f"{client.place}: its prefix of {client.prefix_tokens} tokens makes a prompt of "
                f"{drawn.max() + client.prefix_tokens} tokens, at most {MAX_TOKENS} are possible")])
        prompts.append(drawn)
        outputs.append(client.output_tokens.draw(streams.generator(client.stream("output_tokens")), count))
    return np.concatenate(prompts), np.concatenate(outputs)


def _labels(clients: Sequence[Client], codes: np.ndarray) -> dict:
    labels = {}
    for column in LABELS:
        names = list(dict.fromkeys(client.labels[column] for client in clients if client.labels.get(column)))
        if names:
            of_client = [names.index(client.labels[column]) if client.labels.get(column) else -1 for client in clients]
            labels[column] = np.array(of_client)[codes], names
    return labels


def _prompts(clients: Sequence[Client], codes: np.ndarray, own_tokens: np.ndarray,
             prefix_tokens: np.ndarray) -> Prompts | None:
    """Return prompts: a request with a prefix has the prefix and a rest of its own."""
    groups = {client.prefix_group: i for i, client in enumerate(clients)}
    group = np.array([groups[client.prefix_group] for client in clients])[codes]
    has_prefix, has_rest = prefix_tokens > 0, (prefix_tokens > 0) & (own_tokens > 0)
    if not has_prefix.any():
        return None
    rows = np.arange(len(codes))
    streams = np.column_stack([records.named_stream(group), records.own_stream(rows)])
    is_kept = np.column_stack([has_prefix, has_rest])
    return Prompts(is_kept.sum(axis=1), streams[is_kept], np.column_stack([prefix_tokens, own_tokens])[is_kept])


def _own_loads(clients: Sequence[Client], codes: np.ndarray, stays_ns: Sequence) -> Clients | None:
    """Return the clients with loads of their own; None: there are none."""
    places = [place for place, client in enumerate(clients) if client.load is not None]
    if not places:
        return None
    of_client = np.full(len(clients), -1)
    of_client[places] = np.arange(len(places))
    own = [clients[place] for place in places]
    return Clients(
        of_client[codes], tuple(client.load for client in own), tuple(client.stream("think") for client in own),
        tuple(client.opens_ns for client in own), tuple(stays_ns[place] for place in places),
        tuple(client.is_guess for client in own))
