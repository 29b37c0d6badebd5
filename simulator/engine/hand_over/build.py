"""Construction of disaggregated prefill and decode."""
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.engine.gateway.gateway import Gateway
from simulator.engine.hand_over.operation import HandOver
from simulator.engine.hand_over.pairing import Pairing
from simulator.engine.hand_over.plan import Network
from simulator.routing.disaggregation.base import DecisionContext


def with_prefill_legs(workload, leaves_a_token):
    """Return the workload with a row for the prefill leg of each request.

    They are behind those of all clients, in the same order.
    The clients' tables become views of the first rows, so that writes through either are seen in both.

    leaves_a_token : bool (requests,), or one for all: exclude the last token of the prompt, unless it is alone, from
        the prefill leg. A decode replica computes it again; a state of linear attention that covers it would count it
        twice. Source: vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py.
    """
    num_clients = len(workload)
    requests = np.concatenate([workload.requests, workload.requests])
    demands = np.concatenate([workload.demands, workload.demands])
    outcomes = np.concatenate([workload.outcomes, workload.outcomes])
    requests["prompt_tokens"][num_clients:] -= leaves_a_token & (workload.requests["prompt_tokens"] > 1)
    demands["max_tokens"][num_clients:] = outcomes["output_tokens"][num_clients:] = 1
    demands["deadline_ns"][num_clients:] = demands["due_ns"][num_clients:] = -1
    demands["expected_tokens"][num_clients:] = -1
    demands["tie_rank"][num_clients:] += num_clients
    workload.requests, workload.demands = requests[:num_clients], demands[:num_clients]
    workload.outcomes = outcomes[:num_clients]
    return replace(workload, requests=requests, demands=demands, outcomes=outcomes, num_prefill_legs=num_clients,
                   items=workload.items and workload.items.twice())


def new_transfers(num_requests: int) -> np.ndarray:
    """Return the transfer records of requests before any is split."""
    table = np.zeros(num_requests, records.TRANSFER)
    for name in ("prefill_done_ns", "start_ns", "end_ns"):
        table[name] = records.NEVER_NS
    for name in ("prefill_replica", "decode_replica", "decode_place", "prefill_slot", "decode_slot"):
        table[name] = -1
    return table


def hand_over_between(fleet, gateways: Sequence[Gateway], plan, entries: Sequence,
                      gateway: Callable) -> tuple[list[Gateway], HandOver]:
    """Return all gateways, and the operation for KV transfer.

    gateways : one for each model, of the prefill replicas. plan : ClusterPlan. entries : of build.PoolEntry.
    gateway : makes another one, called with index, model, the GatewayPlan as `front`, and a `router` in place of that
        plan's; None: that one.
    """
    settings, models = plan.hand_over, plan.models
    seconds = {}
    for model in models:
        if model in plan.split_models:
            first = gateways[models.index(model)]
            seconds[model] = gateway(len(gateways) + len(seconds), model, front=settings.decode_front,
                                     router=first.router.for_decodes() if settings.either_leg else None)
    every = [*gateways, *seconds.values()]
    operation = HandOver(fleet, every, plan, Network(entries, settings))
    for first, model in zip(gateways, models, strict=True):
        if model in seconds:
            second = seconds[model]
            context = DecisionContext(first.view, second.view, fleet.shared.workload, second.view.block_size)
            decider = settings.decider and settings.decider(settings.decider_parameters, context)
            for view in (first.view, second.view):
                if view.wants_caches:           # the decider does
                    view.watch_caches()
            operation.pair(first, second, Pairing(first, second, operation, decider, settings,
                                                  fleet.shared.workload), settings.decode_first)
    return every, operation
