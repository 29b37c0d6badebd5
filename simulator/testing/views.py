"""Replica states and requests for routers and scorers, without replicas behind them."""
from collections.abc import Iterable, Sequence

import numpy as np

from simulator import registry
from simulator.core.draws import Draws
from simulator.domain import records
from simulator.kv.content import Content
from simulator.routing.base import RoutingContext
from simulator.signals.view import View
from simulator.workload.base import Workload

OPTIONAL = ("deadline_ns", "due_ns", "slo_class", "tenant", "session", "model", "adapter", "expected_tokens")


def workload(prompts: Sequence, **columns) -> Workload:
    """Return requests one second apart.

    prompts : for each request its tokens, or its pieces [(name of a shared text or "" for its own, tokens)].
    columns : fields of demands; an absent one is -1, none.
    """
    count = len(prompts)
    pieces = [[("", prompt)] if isinstance(prompt, int) else prompt for prompt in prompts]
    requests = np.zeros(count, records.REQUEST)
    requests["arrival_ns"] = np.arange(count) * 10**9
    for field in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        requests[field] = -1
    requests["prompt_tokens"] = [sum(tokens for _, tokens in each) for each in pieces]
    demands = np.zeros(count, records.DEMAND)
    for field in OPTIONAL:
        demands[field] = columns.get(field, -1)
    names, segments = {}, []
    for row, each in enumerate(pieces):
        demands["segments_begin"][row] = len(segments)
        if any(name for name, _ in each):
            demands["num_segments"][row] = len(each)
            segments += [(records.named_stream(names.setdefault(name, len(names))) if name
                          else records.own_stream(row), tokens) for name, tokens in each]
    return Workload(requests=requests, demands=demands, outcomes=np.zeros(count, records.OUTCOME),
                    segments=np.array(segments, records.SEGMENT), request_ids=np.arange(count))


def view_of(num_replicas: int = 3, **fields) -> View:
    """Return a view; `fields`: of states or accounts, one value a replica."""
    view = View(num_replicas)
    tell(view, **fields)
    return view


def tell(view: View, **fields) -> None:
    """Change fields of states or accounts."""
    for name, values in fields.items():
        array = view.state_array if name in view.state_array.dtype.names else view.account_array
        array[name] = values
    view.touch()


def context_of(view: View, requests: Workload, scorers: Iterable = (), **options) -> RoutingContext:
    """Return the context of routers; `scorers`: (class, weight, parameters)."""
    return RoutingContext(view=view, workload=requests, content=Content(requests), scorers=tuple(scorers), **options)


def router_of(name, view, requests=None, scorers=(), filters=(), draws=None, **parameters):
    """Return a router by name.

    scorers : (name, weight, parameters as dict). filters : (name, parameters as dict). draws : words to draw; None:
        its own. parameters : keys of the router, `seed`, and `quotas`, the Quota of each pool.
    """
    seed = parameters.pop("seed", 0)
    requests = requests or workload([100] * 10)
    chosen = [(registry.load("scorer", each), weight, _parameters("scorer", each, keys))
              for each, weight, keys in scorers]
    given = None if draws is None else Draws.replaying(draws)
    first = tuple((registry.load("filter", each), _parameters("filter", each, keys)) for each, keys in filters)
    quotas = tuple(parameters.pop("quotas", ()))
    context = context_of(view, requests, chosen, seed=seed, draws=given, filters=first, quotas=quotas)
    return registry.load("router", name)(_parameters("router", name, parameters), context)


def scorer_of(name, view, requests=None, pools=(), **parameters):
    """Return a scorer by name; `pools` : PoolLabel of each pool."""
    context = context_of(view, requests or workload([100] * 10), pools=tuple(pools))
    return registry.load("scorer", name)(_parameters("scorer", name, parameters), context)


def filter_of(name, view, requests=None, options=None, **parameters):
    """Return a filter by name; `options` : fields of the RoutingContext."""
    context = context_of(view, requests or workload([100] * 10), **(options or {}))
    return registry.load("filter", name)(_parameters("filter", name, parameters), context)


def _parameters(kind, name, keys):
    return registry.parameters_of(registry.load(kind, name))(**keys)


def send(router, row: int, now_ns: int = 0) -> int:
    """Route a request and note that it was sent there; return the replica."""
    replica = router.choose_replica(row, now_ns)
    if replica >= 0:
        router.view.account_array["in_flight"][replica] += 1
        router.view.touch(replica)
        router.note_sent(row, replica, now_ns)
    return replica
