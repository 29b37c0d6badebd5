"""From clients to requests: each draws its own, from random streams of its own."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import LABELS, Clients, Columns, Prompts, nearest, reordered, stream_of
from simulator.workload.drawing.arrivals import arrival_times_s
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING

MAX_REQUESTS = 10**9


@dataclass(frozen=True)
class Client:
    """Somebody who sends requests.

    name : tells its random streams from those of others.
    place : what messages call it.
    process : its arrivals at the rate of its share; None: it has no rate.
    prompt_tokens, output_tokens : distributions of lengths; the prefix of its group is not among the first.
    labels : by column, where it has one.
    prefix_group : prompts of one group begin alike; "": nothing is shared.
    timeout_ns : it gives up so long after each arrival; MISSING: never.
    load : its own; None: [workload.load].
    num_requests : of a load without times.
    opens_ns : when its slots open; None: as its load says.
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

    @property
    def is_closed(self) -> bool:
        """Say whether what ended lets its requests come, in slots of its own."""
        return self.load is not None and self.load.mode == "concurrency"


def draw_clients(clients: Sequence[Client], num_requests: int | None, duration_s: float | None,
                 streams: RandomStreams) -> Columns:
    """Return the requests of all clients by arrival, then by client.

    Those without times come first.

    Parameters
    ----------
    num_requests : the first so many of those that come at rates; None: all before `duration_s`.

    Raises
    ------
    InputErrors
        No request, too many, too late, or with a prompt that is empty or too long.
    """
    arrivals_ns = _arrivals(clients, num_requests, duration_s, streams)
    for i, client in enumerate(clients):
        if client.is_closed:
            arrivals_ns[i] = np.zeros(client.num_requests, np.int64)
    codes = np.repeat(np.arange(len(clients)), [len(each) for each in arrivals_ns])
    arrival_ns = np.concatenate(arrivals_ns)
    if not len(codes):
        raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {duration_s:g} s")])
    prompt_tokens, output_tokens = _lengths(clients, np.bincount(codes, minlength=len(clients)), streams)
    prefix_tokens = np.array([client.prefix_tokens for client in clients])[codes]
    columns = Columns(
        arrival_ns, prompt_tokens + prefix_tokens, output_tokens,
        priority=np.array([client.priority for client in clients])[codes],
        timeout_ns=np.array([client.timeout_ns for client in clients])[codes],
        labels=_labels(clients, codes), prompts=_prompts(clients, codes, prompt_tokens, prefix_tokens),
        clients=_own_loads(clients, codes))
    return replace(reordered(columns, np.argsort(arrival_ns, kind="stable")), request_ids=None)


def _arrivals(clients: Sequence[Client], num_requests: int | None, duration_s: float | None,
              streams: RandomStreams) -> list[np.ndarray]:
    """Return when the requests of each client arrive, ns; nothing of those without a process."""
    rate_per_s = sum(client.process.rate_per_s for client in clients if client.process is not None)
    if rate_per_s == 0:
        return [np.empty(0, np.int64) for _ in clients]
    end_s = duration_s
    if num_requests is not None:        # till then most draws suffice; the same ones come first if they do not
        guess_s = 1.1 * num_requests / rate_per_s + 10 / rate_per_s
        end_s = guess_s if duration_s is None else min(guess_s, duration_s)
    while True:
        if end_s * rate_per_s > MAX_REQUESTS:
            raise InputErrors([KeyFault(f"workload.duration_s: {end_s:g} s at {rate_per_s:g} requests/s are more than "
                                        f"{MAX_REQUESTS} requests; give num_requests or a lower rate")])
        if end_s * 1e9 > MAX_TIME_NS:
            raise InputErrors([KeyFault(
                f"workload.rate_per_s: the last request arrives after {MAX_TIME_NS / 1e9:g} s")])
        times_s = [np.empty(0) if client.process is None else arrival_times_s(
            client.process, streams.generator(stream_of(client.name, "arrivals")), None, end_s) for client in clients]
        if num_requests is None or end_s == duration_s or sum(map(len, times_s)) >= num_requests:
            break
        end_s = 2 * end_s if duration_s is None else min(2 * end_s, duration_s)
    return _first(times_s, num_requests)


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
        drawn = client.prompt_tokens.draw(streams.generator(stream_of(client.name, "prompt_tokens")), count)
        if count and drawn.min() + client.prefix_tokens < 1:
            raise InputErrors([KeyFault(f"{client.place}: draws a prompt of 0 tokens; raise its min to 1 or more")])
        if count and drawn.max() + client.prefix_tokens > MAX_TOKENS:
            raise InputErrors([KeyFault(
                f"{client.place}: its prefix of {client.prefix_tokens} tokens makes a prompt of "
                f"{drawn.max() + client.prefix_tokens} tokens, at most {MAX_TOKENS} are possible")])
        prompts.append(drawn)
        outputs.append(client.output_tokens.draw(streams.generator(stream_of(client.name, "output_tokens")), count))
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
    """Return the prompts of those with a prefix as that and a rest of their own."""
    groups = {client.prefix_group: i for i, client in enumerate(clients)}
    group = np.array([groups[client.prefix_group] for client in clients])[codes]
    has_prefix, has_rest = prefix_tokens > 0, (prefix_tokens > 0) & (own_tokens > 0)
    if not has_prefix.any():
        return None
    rows = np.arange(len(codes))
    streams = np.column_stack([records.named_stream(group), records.own_stream(rows)])
    is_kept = np.column_stack([has_prefix, has_rest])
    return Prompts(is_kept.sum(axis=1), streams[is_kept], np.column_stack([prefix_tokens, own_tokens])[is_kept])


def _own_loads(clients: Sequence[Client], codes: np.ndarray) -> Clients | None:
    """Return who has a load of its own; None: nobody does."""
    own = [client for client in clients if client.load is not None]
    if not own:
        return None
    places = iter(range(len(own)))
    of_client = np.array([-1 if client.load is None else next(places) for client in clients])
    return Clients(of_client[codes], tuple(client.load for client in own), tuple(client.name for client in own),
                   tuple(client.opens_ns for client in own))
