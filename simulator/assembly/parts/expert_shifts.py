"""Experts of a mixture, [engine.experts], and the changes of their load during a run."""
import math
from functools import partial
from typing import Annotated

from msgspec import Meta

from simulator.assembly.latency import latency_model
from simulator.assembly.parts.base import Part
from simulator.domain.experts import Experts
from simulator.errors import InputErrors, KeyFault
from simulator.experts.timeline import ExpertTimeline


class ExpertShifts(Part):
    """Experts, of which the popularity drifts, or which a balancer moves and copies."""

    keys = {"engine.experts": Annotated[Experts | None, Meta(description=(
        "placement, choice and dispatch of a mixture's experts; absent: evenly loaded, one copy of each"))]}
    shifts = ()

    def meet(self, prepared) -> None:
        self.shifts = tuple(site.named(partial(_shift, self.experiment, site, partial(
            latency_model, site, prepared.readings))) for site in prepared.sites)

    def operations(self, sink) -> tuple:
        if not any(self.shifts):
            return ()
        from simulator.engine.operations import expert_shifts

        return (partial(expert_shifts.ExpertShifts, shifts=self.shifts),)


def _shift(experiment, site, make):
    """Return the ShiftPlan of a pool's expert loads; None: they are constant.

    make : arrangement -> LatencyModel.
    """
    experts = site.pool.engine.experts
    if experts is None or not experts.changes:
        return None
    from simulator.engine.operations.shift_plan import ShiftPlan  # imported only when needed
    from simulator.latency.roofline.costs import link_bytes_per_s

    timeline = ExpertTimeline(site.deployment)
    try:
        link = link_bytes_per_s(site.deployment, site.deployment.parallelism.expert_ranks)
    except ValueError as error:
        link = 0.0
        if experts.eplb is not None:
            raise InputErrors([KeyFault(f"engine.experts: eplb moves weights between accelerators: {error}")]) from None
    return ShiftPlan(
        timeline, make, lambda number: math.ceil(timeline.moved_bytes(number) / link * 1e9),
        experts.eplb is not None and experts.eplb.use_async)
