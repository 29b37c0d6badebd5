"""Construction of the encode pools."""
from simulator.engine.encoders.operation import Encoders
from simulator.engine.encoders.stage import EncodeStage


def encoders_before(settings, fleet, gateways, plan, assignment_of=None) -> Encoders:
    """Return the operation that has items encoded before requests are routed.

    settings : EncodePlan. gateways : of arrivals, one for each model, and further ones. plan : ClusterPlan.
    assignment_of : called with a gateway, returns the Assignment of its requests to regions; None: there are none.
    """
    encoders = Encoders(settings, fleet, gateways[:plan.num_models], plan)
    for gateway in gateways[:plan.num_models]:
        groups = {group.region: group for group in encoders.groups if group.gateway is gateway}
        if groups:
            gateway.hold_back(EncodeStage(encoders, groups, assignment_of and assignment_of(gateway)))
    return encoders
