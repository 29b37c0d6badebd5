"""The plan of the gateway, from [cluster]: routing, admission, queue."""
from simulator import registry
from simulator.assembly.ranks import rank_front
from simulator.config.experiment import Experiment
from simulator.domain.latency_line import LatencyLine
from simulator.domain.slo_classes import by_name
from simulator.engine.plan import GatewayPlan


def front_of(experiment: Experiment, routing=None) -> GatewayPlan:
    """Return the plan of the gateway.

    routing : of one leg; None: [cluster.routing].
    """
    cluster = experiment.cluster
    routing, admission = routing or cluster.routing, cluster.admission
    return GatewayPlan(
        router=registry.load("router", routing.policy), router_parameters=routing.parameters,
        scorers=tuple((registry.load("scorer", each.name), each.weight, each.parameters) for each in routing.scorers),
        filters=tuple((registry.load("filter", each.name), each.parameters) for each in routing.filters),
        admission=None if admission.policy == "always" else registry.load("admission", admission.policy),
        admission_parameters=admission.parameters,
        queue=None if cluster.gateway_queue is None else _gateway_queue(), queue_parameters=cluster.gateway_queue,
        classes=by_name(experiment.slo.classes), make=_make,
        snapshot_interval_ns=round(routing.snapshot_refresh_interval_s * 1e9),
        cache_delay_ns=round(routing.cache_signal_delay_s * 1e9),
        admission_latency_ns=round(admission.latency_s * 1e9), routing_latency_ns=round(routing.latency_s * 1e9),
        retry_ns=round(cluster.routing.retry_interval_s * 1e9),
        patience_ns=round(cluster.routing.retry_timeout_s * 1e9), ranks=rank_front(experiment))


def _gateway_queue():
    from simulator.admission.gateway_queue import GatewayQueue

    return GatewayQueue


def _make(kind: str, section, context):
    """Return the policy that a nested table chooses."""
    return registry.load(kind, getattr(section, registry.KINDS[kind].key))(section.parameters, context)


def line_notes(cluster) -> tuple[str, ...]:
    """Return a note on policies that predict by a line; llm-d's have a model."""
    legs = cluster.disaggregation
    tables = (cluster.routing, *(getattr(legs, name) for name in ("prefill", "decode") if getattr(legs, name, None)))
    chosen = {cluster.admission.policy: cluster.admission.parameters} | {
        each.name: each.parameters for table in tables for each in getattr(table, "filters", ())}
    names = [name for name, parameters in chosen.items() if isinstance(parameters, LatencyLine)]
    return (f"{', '.join(names)}: latencies are predicted by a line (base_us, per_sequence_us, per_prefill_token_us); "
            "llm-d's predictor is a trained model",) if names else ()


def has_a_gate(cluster) -> bool:
    """Return whether the gateway may delay or reject requests."""
    return (cluster.admission.policy != "always" or cluster.gateway_queue is not None
            or max(cluster.admission.latency_s, cluster.routing.latency_s, cluster.routing.retry_timeout_s) > 0)
