"""Settings of ExpertShifts: the latency model of a pool as a function of each replica's iterations."""
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

MOST_MODELS = 64        # models kept although no replica uses them at present


class ShiftPlan(msgspec.Struct, frozen=True):
    """The changes of a pool's experts over time.

    timeline : next_change(step), arrangement(step) as in simulator.experts.timeline.
    make : arrangement -> LatencyModel.
    moving_ns : number of a rearrangement -> duration of its weight transfer.
    use_async : the old placement serves meanwhile; False: one iteration waits.
    """

    timeline: Any
    make: Callable[[Hashable], Any]
    moving_ns: Callable[[int], int]
    use_async: bool


class Models:
    """The latency models of a pool by arrangement, shared by its replicas."""

    def __init__(self, plan: ShiftPlan, base: Any):
        self._plan, self._base = plan, base
        self._models = {plan.timeline.arrangement(0): base}
        self._users = {}                        # arrangement -> number of replicas that use it
        self._counts = {}                       # counts of models that were dropped
        self._warnings = {}                     # their warnings, in order
        self.imbalances = {plan.timeline.arrangement(0): _imbalance(base)}

    def of(self, arrangement: Hashable) -> Any:
        """Return the model of an arrangement."""
        if arrangement not in self._models:
            self._models[arrangement] = self._plan.make(arrangement)
            self.imbalances[arrangement] = _imbalance(self._models[arrangement])
        return self._models[arrangement]

    def change(self, before: Hashable, after: Hashable) -> None:
        """Note that a replica changes from one arrangement to another."""
        self._users[after] = self._users.get(after, 0) + 1
        self._users[before] = self._users.get(before, 0) - 1
        if len(self._models) > MOST_MODELS:
            for arrangement in [each for each, count in self._users.items() if count <= 0]:
                del self._users[arrangement]
                model = self._models.pop(arrangement, None)
                if model is not None and model is not self._base:
                    self._gather(model)

    def add_to(self, provenance: dict, diagnosis: list[str]) -> None:
        """Add the counts and warnings of all models but the first."""
        for model in self._models.values():
            if model is not self._base:
                self._gather(model)
        self._models = {}
        for name, count in self._counts.items():
            provenance[name] = provenance.get(name, 0) + count
        diagnosis += [warning for warning in self._warnings if warning not in diagnosis]

    def _gather(self, model: Any) -> None:
        for name, count in model.provenance().items():
            if type(count) is int:
                self._counts[name] = self._counts.get(name, 0) + count
        self._warnings |= dict.fromkeys(model.warnings())


def _imbalance(model: Any) -> float:
    return model.provenance()["experts"]["imbalance_at_start"]
