"""BLIS's routers that draw among equals: our scores, and the numbers that BLIS draws."""
import numpy as np

from simulator.routing.policies.least_loaded import LeastLoaded, LeastLoadedParameters
from simulator.routing.policies.weighted import Weighted
from simulator.routing.python_router import PythonRouter
from support.blis_random import GoRandom, seed_of


class Drawing(PythonRouter):
    """A router that asks another for scores and draws among the best ones, if there are several."""

    def __init__(self, scoring, context):
        super().__init__(None, context)
        self._scoring, self._random = scoring, GoRandom(seed_of("router"))

    def choose(self, request, now_ns):
        """See PythonRouter; likewise below."""
        scores = self._scoring.scores(request.row, now_ns)
        best = np.flatnonzero(scores == scores.max())
        return best[self._random.below(len(best))] if len(best) > 1 else best[0]

    def on_sent(self, request, replica, now_ns):
        """Pass it on."""
        self._scoring.note_sent(request.row, replica, now_ns)

    def on_left(self, request, replica, now_ns):
        """Pass it on."""
        self._scoring.note_left(request.row, replica, now_ns)


class BlisLeastLoaded(Drawing):
    """--routing-policy least-loaded."""

    def __init__(self, parameters, context):
        super().__init__(LeastLoaded(LeastLoadedParameters(metric="effective"), context), context)


class BlisWeighted(Drawing):
    """--routing-policy weighted."""

    Parameters = Weighted.Parameters

    def __init__(self, parameters, context):
        super().__init__(Weighted(parameters, context), context)
