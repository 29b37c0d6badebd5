"""Construction of disaggregated prefill and decode."""
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.engine.gateway.gateway import Gateway
from simulator.engine.hand_over.operation import HandOver
from simulator.engine.hand_over.pairing import Pairing
from simulator.engine.hand_over.plan import HandOverPlan, Network, Ways
from simulator.engine.hand_over.tier import RemoteTier
from simulator.engine.plan import ClusterPlan, Pool
from simulator.kv.tiers.multi import MultiTier
from simulator.routing.disaggregation.base import DecisionContext


class Split:
    """Division of requests into a prefill and a decode leg, as `engine.build` uses it.

    settings : HandOverPlan.
    """

    def __init__(self, settings: HandOverPlan):
        self.settings = settings

    def legs_of(self, workload, plan: ClusterPlan, gateway_of: Callable):
        """Return the workload with prefill legs; `gateway_of` : engine.build.gateway_of."""
        return with_prefill_legs(workload, _leaves_a_token(workload, plan, gateway_of(workload, plan.models)))

    @staticmethod
    def new_transfers(num_requests: int) -> np.ndarray:
        """Return the transfer records of requests before any is split."""
        table = np.zeros(num_requests, records.TRANSFER)
        for name in ("prefill_done_ns", "start_ns", "end_ns"):
            table[name] = records.NEVER_NS
        for name in ("prefill_replica", "decode_replica", "decode_place", "prefill_slot", "decode_slot"):
            table[name] = -1
        return table

    def prompts_return(self, plan: ClusterPlan) -> bool:
        """Return whether a replica may compute a prompt of a request again."""
        return bool(plan.operations or self.settings.either_leg or any(pool.role == "both" for pool in plan.pools))

    def idle_roles(self, index: int, plan: ClusterPlan) -> tuple[str, ...]:
        """Return the roles of pools to which a gateway sends no requests."""
        return () if self.settings.either_leg else ("prefill",) if index >= plan.num_models else ("decode",)

    def tier_of(self, pool: Pool, plan: ClusterPlan, shared) -> Callable:
        """Return a factory of KVTier for the replicas of a pool; `shared` : build.Shared."""
        facts, settings = pool.scheduler.facts(pool.parameters), self.settings
        polls = not facts.notices_when_forming and (
            settings.notices_at_start or pool.tier is not None or facts.is_async)
        if pool.is_in_lock_step and polls:
            raise ValueError("ranks in lock step look for KV from other replicas at the end of a step, not while one "
                             "executes")
        ways = Ways(polls, reads=pool.role != "prefill" or settings.either_leg,
                    names_blocks=settings.either_leg or any(each.role == "both" for each in plan.pools),
                    needs_token=not facts.does_whole)
        remote = partial(RemoteTier, shared.transfers, departures=shared.departures, ways=ways, plan=settings)
        if pool.tier is None:
            return lambda workload: remote(workload.requests)
        asks_both = settings.order != "destination"     # SGLang's decode replicas query no tier for a prompt
        return lambda workload: MultiTier(remote(workload.requests), pool.tier(workload), asks_both)

    def gateways(self, fleet, gateways: Sequence[Gateway], plan: ClusterPlan, entries: Sequence,
                 gateway: Callable) -> list[Gateway]:
        """Return all gateways, and give the fleet the operation for KV transfer.

        gateways : one for each model, of the prefill replicas. entries : of build.PoolEntry.
        gateway : makes another one, called with index, model, the GatewayPlan as `front`, and a `router` in place of
            that plan's; None: that one.
        """
        settings, models = self.settings, plan.models
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
        fleet.operations.append(operation)
        return every


def _leaves_a_token(workload, plan: ClusterPlan, gateway_of: dict[int, int]) -> np.ndarray:
    """Return for each request whether its model has layers with states, and its prompt is short enough to be served.

    gateway_of : code of a model label -> index of its gateway.
    """
    limits = []                 # by model: prompts below
    for model in plan.models:
        pools = [pool for pool in plan.pools if pool.model == model]
        has_states = any(pool.layer_groups is not None and pool.layer_groups.has_states for pool in pools)
        limits.append(min(pool.max_model_len for pool in pools) if has_states else 0)
    codes, of_request = np.unique(workload.demands["model"], return_inverse=True)
    limit = np.array([limits[gateway_of[code]] if code in gateway_of else 0 for code in codes.tolist()], np.int64)
    return workload.requests["prompt_tokens"] < limit[of_request]


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
