"""Derivation of HandOverPlan from the settings of an experiment."""
import math
from collections.abc import Sequence

from msgspec.structs import replace

from simulator.domain.kv_link import kv_link, kv_wire
from simulator.domain.kv_transfer import KvTransfer
from simulator.engine.hand_over.plan import HandOverPlan, Pair, Port
from simulator.errors import InputErrors, KeyFault

US = 1e3        # ns


def hand_over_plan(settings: KvTransfer, roles: Sequence, deployments: Sequence, fronts: Sequence, decider,
                   decode_first: bool, block_bytes: Sequence = ()) -> HandOverPlan:
    """Return the plan for KV transfer.

    roles : of each pool, with the model it serves. deployments : of each pool; None: the experiment has none.
    fronts : GatewayPlan for prefill legs, and for decode legs.
    decider : a Decider subclass and its parameters; None: all requests are split.
    block_bytes : of each pool, of a block of each group of its layers; None, or empty: they share a block table.

    Raises
    ------
    InputErrors
        Unknown bytes or rates.
    """
    pairs = {(i, k): (deployments[i], deployments[k]) for i, (one, serves) in enumerate(roles)
             for k, (other, also) in enumerate(roles) if serves == also and one != "decode" and other != "prefill"}
    _check(settings, deployments)
    habits, reserved = settings.habits, settings.num_reserved_decode_tokens
    base_us = habits.base_us if settings.base_us is None else settings.base_us
    lease_s = 30.0 if settings.lease_s is None else settings.lease_s
    return HandOverPlan(
        ports=tuple(_port(settings, deployment) for deployment in deployments),
        pairs={pools: replace(_pair(settings, *ends), block_bytes=(block_bytes and block_bytes[pools[1]]) or ())
               for pools, ends in pairs.items()},
        prefill_front=fronts[0], decode_front=fronts[1],
        decider=decider and decider[0], decider_parameters=decider and decider[1], decode_first=decode_first,
        contention=settings.contention or habits.contention, base_ns=round(base_us * US),
        handshake_ns=round(settings.handshake_ms * 1e6), hop_ns=round((settings.answer_hop_us or 0.0) * US),
        notice_ns=round(settings.notice_us * US), recomputes=settings.failure_policy == "recompute",
        lease_ns=round(lease_s * 1e9), heartbeat_ns=_seconds_ns(lease_s / 6) * (settings.heartbeats is not False),
        extension_ns=_seconds_ns(lease_s * 2 / 3),
        takes_whole_prompt=settings.chosen("volume", "volumes") == "full_prompt",
        notices_at_start=settings.noticed_at == "start", order=habits.order, place=habits.place, pushes=habits.pushes,
        granularity=settings.chosen("granularity", "granularities"),
        has_first_token=settings.chosen("first_token", "first_tokens") == "prefill", sends_token=habits.sends_token,
        unawaited=settings.upstream_compat,
        resolution_ns=round(habits.resolution_us * US) or 1,
        reserved_tokens=habits.reserved_tokens if reserved is None else reserved)


def _seconds_ns(duration_s: float) -> int:
    """Return a part of a lease in ns: whole seconds, as in vLLM, unless it is shorter than one."""
    return max(round((math.floor(duration_s) if duration_s >= 1 else duration_s) * 1e9), 1)


def _check(settings: KvTransfer, deployments: Sequence) -> None:
    faults = []
    if settings.kv_bytes_per_token is None and None in deployments:
        faults.append("kv_transfer.kv_bytes_per_token: missing; expected a number, or [model] and [hardware]")
    if settings.bandwidth_gb_per_s is None and any(
            deployment is None or not kv_link(deployment).scaleout_bytes_per_s for deployment in deployments):
        faults.append("kv_transfer.bandwidth_gb_per_s: missing; expected a number, or hardware whose network is known")
    if settings.nics_per_transfer == "all" and any(
            deployment is None or deployment.node is None for deployment in deployments):
        faults.append('kv_transfer.nics_per_transfer: "all" takes [topology] node, which says how many cards there are')
    if settings.chosen("granularity", "granularities") == "layer" and None in deployments:
        faults.append('kv_transfer.granularity: "layer" takes [model] and [hardware], which tell the number of layers')
    if faults:
        raise InputErrors(map(KeyFault, faults))


def _port(settings: KvTransfer, deployment) -> Port:
    shares_node = settings.nics_per_transfer == "all"
    link = deployment and kv_link(deployment)
    if settings.bandwidth_gb_per_s is not None:
        return Port(settings.bandwidth_gb_per_s * 1e9, shares_node=shares_node)
    outer, share = link.scaleout_bytes_per_s, settings.efficiency
    if shares_node:
        outer = deployment.node.scaleout_bytes_per_s * deployment.node.num_accelerators
    return Port(outer * share, link.scaleup_bytes_per_s * share, link.replicas_per_domain, shares_node)


def _pair(settings: KvTransfer, source, destination) -> Pair:
    last = 1.0 / destination.model.num_layers if destination else 0.0
    if settings.kv_bytes_per_token is not None:
        return Pair(settings.kv_bytes_per_token, layer_frac=last)
    wire = kv_wire(source, destination)
    is_whole = settings.bandwidth_gb_per_s is not None or settings.nics_per_transfer == "all"
    return Pair(wire.bytes_per_token, wire.bytes_per_request, 1.0 if is_whole else wire.source_frac, layer_frac=last)
