"""Construction of the encode pools."""
from collections.abc import Sequence

from simulator.engine.encoders.operation import Encoders
from simulator.engine.encoders.stage import EncodeStage
from simulator.engine.gateway.gateway import Gateway


def encoders_before(gateways: Sequence[Gateway], fleet, plan) -> list[Encoders]:
    """Return the operation that has items encoded before requests are routed.

    [] without encode pools. gateways : one for each model, where requests arrive. plan : ClusterPlan.
    """
    if plan.encode is None:
        return []
    encoders = Encoders(fleet, gateways, plan)
    for group in encoders.groups:
        group.gateway.hold_back(EncodeStage(encoders, group))
    return [encoders]
