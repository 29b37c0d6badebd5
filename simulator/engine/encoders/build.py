"""Construction of the encode pools."""
from simulator.engine.encoders.operation import Encoders
from simulator.engine.encoders.stage import EncodeStage


def encoders_before(settings, fleet, gateways, plan) -> Encoders:
    """Return the operation that has items encoded before requests are routed.

    settings : EncodePlan. gateways : of arrivals, one for each model, and further ones. plan : ClusterPlan.
    """
    encoders = Encoders(settings, fleet, gateways[:plan.num_models], plan)
    for group in encoders.groups:
        group.gateway.hold_back(EncodeStage(encoders, group))
    return encoders
