"""`slo_attainment`: one replica more while too many requests miss their bounds, one less while nearly all keep them."""
import collections
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.scaling.base import Autoscaler, Observation, spread

SEEN = 10_000          # decisions that are remembered
BoundMs = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class SloAttainmentParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds, and how many requests are to keep them."""

    ttft_ms: Annotated[BoundMs | None, Meta(description="time to first token")] = None
    tpot_ms: Annotated[BoundMs | None, Meta(description="time per output token after the first")] = None
    e2el_ms: Annotated[BoundMs | None, Meta(description="end-to-end latency")] = None
    target: Annotated[Share, Meta(description=(
        "below this share of requests that keep all bounds a replica is added"))] = 0.95
    comfortable: Annotated[Share, Meta(description=(
        "from this share on one is taken away, if the others would have room for its requests in flight"))] = 0.99

    def __post_init__(self):
        if self.ttft_ms is None and self.tpot_ms is None and self.e2el_ms is None:
            raise ValueError("give a bound: ttft_ms, tpot_ms or e2el_ms")
        if self.comfortable < self.target:
            raise ValueError(f"comfortable: {self.comfortable:g} is below target = {self.target:g}")


class SloAttainment(Autoscaler):
    """A step at a time, by the requests that left since the last one.

    If no request left and none is there, all bounds are kept. If none left but some are in flight, a request that has
    been there for longer than a bound has missed it, and nothing else is known.
    """

    Parameters = SloAttainmentParameters
    why_no_roles = "what requests keep or miss is the work of both their replicas"
    wants_finished = True

    def __init__(self, parameters):
        super().__init__(parameters)
        self._seen = collections.deque(maxlen=SEEN)         # at each decision since a request left

    def decide(self, observation):
        """See Autoscaler."""
        attained, now = attainment(observation.finished, self.parameters), Seen.at(observation)
        if attained is None and now.there == 0:
            return spread(observation, -1)
        if observation.serving == 0:
            return spread(observation, int(observation.starting == 0 and observation.queued > 0))
        if attained is not None:
            self._seen.clear()
        self._seen.append(now)
        if attained is None and self._some_missed(now):
            attained = 0.0
        if attained is None:
            return {}
        if attained < self.parameters.target:
            return spread(observation, 1 if observation.starting == 0 else 0)
        if attained < self.parameters.comfortable or observation.serving < 2:
            return {}
        room = observation.states()["max_running"].sum() * (1 - 1 / observation.serving)
        return spread(observation, -1) if observation.accounts()["in_flight"].sum() <= room else {}


    def _some_missed(self, now):
        """Return whether a request that is there has certainly missed a bound; none left since the first decision."""
        of_answers, of_first_tokens = (self._there_before(now, bound_ms)
                                       for bound_ms in (self.parameters.e2el_ms, self.parameters.ttft_ms))
        return of_answers > 0 or now.waiting > now.there - of_first_tokens

    def _there_before(self, now, bound_ms):
        """Return a lower bound on the requests that have been there for longer than a bound."""
        if bound_ms is None:
            return 0
        return max((then.there for then in self._seen if now.time_ns - then.time_ns > bound_ms * 1e6), default=0)


class Seen(NamedTuple):
    """Number of requests at a decision, and how many waited."""

    time_ns: int
    there: int
    waiting: int

    @classmethod
    def at(cls, observation: Observation) -> "Seen":
        """Return the numbers at a decision."""
        there, waiting = observation.accounts()["in_flight"].sum(), observation.states()["waiting"].sum()
        return cls(observation.now_ns, observation.queued + int(there), observation.queued + int(waiting))


def attainment(requests: np.ndarray, bounds) -> float | None:
    """Return the share of requests that kept all bounds; None where there were none."""
    if not len(requests):
        return None
    kept = requests["status"] == records.COMPLETED
    ttft_ns = requests["first_token_ns"] - requests["arrival_ns"]
    e2el_ns = requests["completed_ns"] - requests["arrival_ns"]
    tpot_ns = (e2el_ns - ttft_ns) / np.maximum(requests["output_tokens"] - 1, 1)
    for value_ns, bound_ms in ((ttft_ns, bounds.ttft_ms), (tpot_ns, bounds.tpot_ms), (e2el_ns, bounds.e2el_ms)):
        if bound_ms is not None:
            kept &= value_ns <= bound_ms * 1e6
    return float(kept.mean())
