"""`queueing`: as many replicas as keep latencies, by a model of a queue with learned parameters; llm-d's.

Source: llm-d/llm-d-workload-variant-autoscaler@b08b1c77, pkg/analyzer and its tuner; noise of the filter as in
llm-inferno/model-tuner@03f2cda0 (pkg/config/defaults.go) and @a169eed2 (config-data); the rules restated.
"""
import math
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.scaling.base import Autoscaler, spread

QUEUE_PER_PLACE = 10        # requests that may wait, for each that may run
LOWEST, HIGHEST = 0.001, 0.999      # of the rate of one request alone, and of a full batch: where rates are searched
MOST_NIS = 7.378            # 97.5 % point of chi square with two degrees of freedom
CHANGE = 0.15               # standard deviation of a parameter from update to update, as a share of its first value
ERROR = 0.05 / 1.96         # standard deviation of an observation, as a share of it
STEP = 0.01                 # of the numerical derivative, as a share of the parameter
BISECTIONS = 60

Positive = Annotated[float, Meta(gt=0, le=1e9)]


class QueueingParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First parameters of the queue, and the latencies to be kept."""

    alpha: Annotated[Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "ms"})], Meta(description=(
        "time of an iteration without tokens"))]
    beta: Annotated[Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "ms per token"})], Meta(description=(
        "time of an iteration for each token that it computes"))]
    gamma: Annotated[Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "ms per token"})], Meta(description=(
        "time of an iteration for each token of context"))]
    learn: Annotated[bool, Meta(description=(
        "update the parameters by the observed latencies, with an extended Kalman filter"))] = True
    ttft_ms: Annotated[Positive, Meta(description="bound on the mean time to first token")] = 500.0
    itl_ms: Annotated[Positive, Meta(description="bound on the mean time between two tokens")] = 50.0


class Queue(NamedTuple):
    """A replica as a queue M/M/1/K with a service rate that depends on its state.

    Times are in ms, rates per ms.

    alpha, beta, gamma : see `QueueingParameters`. isl, osl : mean lengths. places : requests that may run.
    """

    alpha: float
    beta: float
    gamma: float
    isl: float
    osl: float
    places: int

    def iteration_ms(self, running):
        """Return the time of an iteration."""
        tokens, context = (self.isl + self.osl) / (self.osl + 1), self.isl + self.osl / 2
        return self.alpha + running * (self.beta * tokens + self.gamma * context)

    def prefill_ms(self, running):
        """Return the time of a prompt."""
        return self.iteration_ms(running) + (self.beta + self.gamma) * self.isl

    def decode_ms(self, running):
        """Return the time of an output token."""
        return self.iteration_ms(running) + self.beta + self.gamma * (self.isl + self.osl / 2)

    def service_rate(self, running):
        """Return the requests that complete, with this many running."""
        return running / (self.prefill_ms(running) + self.osl * self.decode_ms(running))

    def latencies_ms(self, rate: float) -> tuple[float, float]:
        """Return the mean time to first token and between tokens at an arrival rate."""
        most = (QUEUE_PER_PLACE + 1) * self.places
        rates = self.service_rate(np.minimum(np.arange(1, most + 1), self.places))
        logs = np.concatenate([[0.0], np.cumsum(np.log(rate / rates))])
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        there = np.arange(most + 1)
        waiting = float((shares * np.maximum(there - self.places, 0)).sum())
        running = float((shares * there).sum()) - waiting
        wait_ms = waiting / (rate * (1 - float(shares[-1])))
        decode_ms = self.decode_ms(running)
        return wait_ms + self.prefill_ms(running) + decode_ms, decode_ms

    def largest_rate(self, ttft_ms: float, itl_ms: float) -> float:
        """Return the largest arrival rate in the searched range that keeps both bounds."""
        low, high = LOWEST * self.service_rate(1), HIGHEST * self.service_rate(self.places)

        def keeps(rate):
            found = self.latencies_ms(rate)
            return found[0] <= ttft_ms and found[1] <= itl_ms

        if keeps(high) or not keeps(low):
            return high if keeps(high) else low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return low


class Filter:
    """Extended Kalman filter on (alpha, beta, gamma).

    The parameters do not change by themselves. Observed are the mean times to first token and between tokens. An update
    is undone if its normalised innovation exceeds `MOST_NIS`, or if a parameter would not be positive.
    """

    def __init__(self, alpha: float, beta: float, gamma: float):
        self.state = np.array([alpha, beta, gamma])
        self._noise = np.diag((CHANGE * self.state) ** 2)
        self._covariance = self._noise.copy()

    def update(self, isl: float, osl: float, places: int, rate: float, observed_ms: tuple[float, float]) -> bool:
        """Take one observation; return whether it changed the parameters."""
        def expected(state):
            return np.array(Queue(*state, isl, osl, places).latencies_ms(rate))

        covariance = self._covariance + self._noise
        steps = np.diag(STEP * self.state)
        slopes = np.stack([(expected(self.state + step) - expected(self.state - step)) / (2 * step.sum())
                           for step in steps], axis=1)
        innovation = np.array(observed_ms) - expected(self.state)
        spread_ms = slopes @ covariance @ slopes.T + np.diag((ERROR * np.array(observed_ms)) ** 2)
        gain = np.linalg.solve(spread_ms, slopes @ covariance).T
        state = self.state + gain @ innovation
        if innovation @ np.linalg.solve(spread_ms, innovation) > MOST_NIS or not (state > 0).all():
            return False
        self.state, self._covariance = state, (np.eye(3) - gain @ slopes) @ covariance
        return True


class Queueing(Autoscaler):
    """As many replicas as the arrival rate over the largest rate of one.

    The largest rate is that at which a replica keeps both bounds, see `Queue`. The arrival rate is that of the last
    interval. One set of parameters holds for all pools of a model. Without a completed request numbers stay.
    """

    Parameters = QueueingParameters
    wants_finished = True
    why_no_roles = "its queue is of replicas that serve whole requests"

    def __init__(self, parameters):
        super().__init__(parameters)
        self.filter = Filter(parameters.alpha, parameters.beta, parameters.gamma)
        self._then_ns = self._were_there = 0

    @classmethod
    def notes(cls, parameters):
        """See Autoscaler."""
        return ("autoscaling: noise of the filter: 15 % of each first parameter, 5 % / 1.96 of each latency",) if (
            parameters.learn) else ()

    def decide(self, observation):
        """See Autoscaler."""
        span_ms, self._then_ns = (observation.now_ns - self._then_ns) / 1e6, observation.now_ns
        are_there = observation.queued + int(observation.accounts()["in_flight"].sum())
        came = len(observation.finished) + are_there - self._were_there
        self._were_there = are_there
        if observation.serving == 0:
            return spread(observation, int(observation.starting == 0 and observation.queued > 0))
        done = observation.finished[observation.finished["status"] == records.COMPLETED]
        if len(done) == 0 or span_ms <= 0:
            return spread(observation, -1) if are_there == 0 and came == 0 else {}
        rate, places = max(came, 0) / span_ms, int(observation.states()["max_running"].min())
        isl, osl = (float(done[name].mean()) for name in ("prompt_tokens", "output_tokens"))
        latencies = latencies_ms(done)
        if self.parameters.learn and rate > 0 and latencies is not None:
            self.filter.update(isl, osl, places, rate / observation.serving, latencies)
        largest = Queue(*self.filter.state, isl, osl, places).largest_rate(
            self.parameters.ttft_ms, self.parameters.itl_ms)
        return spread(observation, max(math.ceil(rate / largest), 1) - observation.serving - observation.starting)


def latencies_ms(done: np.ndarray) -> tuple[float, float] | None:
    """Return the mean TTFT and time between tokens; None without several tokens."""
    several = done[done["output_tokens"] > 1]
    if len(several) == 0:
        return None
    gaps_ns = (several["completed_ns"] - several["first_token_ns"]) / (several["output_tokens"] - 1)
    ttft_ms, itl_ms = float((done["first_token_ns"] - done["arrival_ns"]).mean()) / 1e6, float(gaps_ns.mean()) / 1e6
    return (ttft_ms, itl_ms) if min(ttft_ms, itl_ms) > 0 else None
