"""Policies that hand their decisions to the agent of an episode."""
from typing import Any, NamedTuple

import numpy as np

from simulator.admission.python_admission import PythonAdmission
from simulator.gym.turns import turns_here
from simulator.routing.python_router import PythonRouter
from simulator.scaling.base import Autoscaler, Observation


class Decision(NamedTuple):
    """A decision that the engine waits for.

    row : of the request; -1: there is none.
    states, accounts : of the replicas as the gateway sees them, `records.REPLICA_STATE`, `records.REPLICA_ACCOUNT`;
        they hold until the decision is answered.
    cached_blocks : leading blocks of the prompt that each replica has, as far as known; (): not looked up.
    scaling : an autoscaler's view; None: the decision is on a request.
    """

    now_ns: int
    row: int = -1
    states: np.ndarray | None = None
    accounts: np.ndarray | None = None
    cached_blocks: Any = ()
    scaling: Observation | None = None


class AskedRouter(PythonRouter):
    """The agent chooses the replica of each request, unless none is open."""

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self._turns = turns_here()

    def choose(self, request, now_ns):
        """See PythonRouter."""
        if not self.accounts["is_routable"].any():
            return None
        cached = self.cached_blocks(request, now_ns) if self.uses_caches else ()
        return self._turns.ask(Decision(now_ns, request.row, self.states, self.accounts, cached))


class CacheAskedRouter(AskedRouter):
    """The same; the agent sees cached prefixes too."""

    uses_caches = True


class AskedAdmission(PythonAdmission):
    """The agent admits or rejects each request."""

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self._turns = turns_here()

    def lets_pass(self, request, now_ns):
        """See PythonAdmission."""
        return self._turns.ask(Decision(now_ns, request.row, self.states, self.accounts))


class AskedAutoscaler(Autoscaler):
    """The agent decides on the number of replicas of all pools of a model."""

    wants_finished = True
    needs_roles = takes_whole = True

    def __init__(self, parameters):
        super().__init__(parameters)
        self._turns = turns_here()

    def decide(self, observation):
        """See Autoscaler."""
        numbers = self._turns.ask(Decision(observation.now_ns, scaling=observation))
        changes = {variant.index: int(replicas) - variant.serving - variant.starting
                   for variant, replicas in zip(observation.variants, numbers, strict=True)}
        return {index: change for index, change in changes.items() if change}
