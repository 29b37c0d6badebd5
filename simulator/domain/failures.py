"""Schemas of [[failures]] and [cluster.health]: failures of replicas, and their detection by the gateway."""
import math
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:          # NumPy would be half of the time that reading an experiment takes
    import numpy as np

MAX_S = 9e9             # 285 years
Seconds = Annotated[float, Meta(ge=0, le=MAX_S)]
Mean = Annotated[float, Meta(gt=0, le=MAX_S)]
Shape = Annotated[float, Meta(ge=0.1, le=100)]
Law = Literal["exponential", "weibull", "constant"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failure, once at a time or again and again, one of [[failures]].

    A stop loses the KV cache, a lost link does not: a replica without its link pauses until the link is back. A slow
    replica takes longer for each iteration that begins while it is slow. An emptied cache fills again.
    """

    kind: Annotated[Literal["stop", "slow", "link", "cache"], Meta(description=(
        "stop: the replica stops and starts again; slow: its iterations take longer; link: its link is lost; cache: "
        "its prefix cache is emptied, as a call of vLLM's /reset_prefix_cache does, unless it has a request then"))]
    target: Annotated[Literal["replica", "rank", "node", "unit", "pool"], Meta(description=(
        "unit that fails at once, with all its replicas. rank: a data-parallel rank; a stop also hits the ranks behind "
        "its front end, a stop or a lost link the ranks in lock step with it"))] = "replica"
    which: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | Literal["any", "each"], Meta(description=(
        "number of the target in the cluster; any: one that serves, drawn each time; each: every one, "
        "independently"))] = "any"
    pool: Annotated[str | None, Meta(description="the failure hits this pool only; default: all pools")] = None
    at_s: Annotated[Seconds | None, Meta(description="instant at which the failure happens, once")] = None
    mtbf_s: Annotated[Mean | None, Meta(description=(
        "mean time between failures: from the start, and from each repair, to the next failure"))] = None
    mtbf_law: Annotated[Law, Meta(description="distribution of the times between failures")] = "exponential"
    mtbf_shape: Annotated[Shape, Meta(description=(
        "shape of a weibull mtbf_law; below 1: the longer the target works, the less likely it fails"))] = 1.0
    duration_s: Annotated[Mean | None, Meta(description=(
        "duration of the failure; without duration_s and mttr_s: for ever"))] = None
    mttr_s: Annotated[Mean | None, Meta(description="mean time to repair, in place of duration_s")] = None
    mttr_law: Annotated[Law, Meta(description="distribution of the repair times")] = "exponential"
    mttr_shape: Annotated[Shape, Meta(description="shape of a weibull mttr_law")] = 1.0
    slow_factor: Annotated[float, Meta(gt=0, le=1e6, description=(
        "slow: factor on the duration of iterations, host time included"))] = 2.0
    on_failure: Annotated[Literal["retry", "restart", "lost", "migrate"], Meta(description=(
        "requests of a failed replica, once the gateway has noticed. retry: they go elsewhere, and prompt and tokens "
        "so far are computed again; restart: they begin again, streamed tokens are void and time to first token runs "
        "on; lost: they are dropped; migrate (slow only, and it closes the replica too): they move as "
        "[cluster.rescheduling] says, and stay if they cannot. Otherwise a slow replica keeps its requests"))] = "retry"
    max_retries: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "a request that was sent elsewhere this often is dropped the next time"))] = 3
    name: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description=(
        "name of the failure's random stream; default: its index among the failures"))] = None

    def __post_init__(self):
        if (self.at_s is None) == (self.mtbf_s is None):
            raise ValueError("give either at_s or mtbf_s")
        if self.duration_s is not None and self.mttr_s is not None:
            raise ValueError("give duration_s or mttr_s, not both")
        if self.kind == "cache" and (self.duration_s is not None or self.mttr_s is not None):
            raise ValueError('kind = "cache" takes neither duration_s nor mttr_s: it takes no time')
        if self.on_failure == "migrate" and self.kind != "slow":
            raise ValueError('on_failure = "migrate" takes kind = "slow": no KV can be fetched from a replica that '
                             "has stopped or lost its link")
        if self.target == "pool" and (self.pool is None or self.which != "any"):
            raise ValueError('target = "pool" takes the name of the pool as pool, and no which')
        faults = [f"{key} has an effect only with {setting}: leave it out" for key, setting in self._without_effect()]
        if faults:
            raise ValueError("; ".join(faults))

    def _without_effect(self):
        """Yield (key, the setting with which it has an effect) for the keys that were given in vain."""
        sends = self.kind in ("stop", "link") or self.on_failure == "migrate"
        effects = {"slow_factor": (self.kind == "slow", 'kind = "slow"'),
                   "on_failure": (sends, 'kind = "stop" or "link", or as "migrate"'),
                   "max_retries": (sends and self.on_failure != "lost", "requests that are sent elsewhere"),
                   "mtbf_law": (self.mtbf_s is not None, "mtbf_s"),
                   "mtbf_shape": (self.mtbf_s is not None and self.mtbf_law == "weibull", 'mtbf_law = "weibull"'),
                   "mttr_law": (self.mttr_s is not None, "mttr_s"),
                   "mttr_shape": (self.mttr_s is not None and self.mttr_law == "weibull", 'mttr_law = "weibull"')}
        for field in msgspec.structs.fields(self):
            has_effect, setting = effects.get(field.name, (True, ""))
            if not has_effect and getattr(self, field.name) != field.default:
                yield field.name, setting

    def time_to_failure_ns(self, generator: "np.random.Generator") -> int:
        """Draw the time to the next failure."""
        return draw_ns(generator, self.mtbf_s, self.mtbf_law, self.mtbf_shape)

    def duration_ns(self, generator: "np.random.Generator") -> int | None:
        """Draw the duration of a failure; None: for ever."""
        if self.mttr_s is not None:
            return draw_ns(generator, self.mttr_s, self.mttr_law, self.mttr_shape)
        return None if self.duration_s is None else max(round(self.duration_s * 1e9), 1)


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Detection of replicas that do not answer, [cluster.health].

    Until a failure is noticed the gateway may send requests to the replica, which stay with its earlier ones. A replica
    that answers again before the gateway notices is never closed.
    """

    check_interval_s: Annotated[Seconds, Meta(description=(
        "interval of health checks, the first at time 0; 0: continuous"))] = 0.0
    detection_delay_s: Annotated[Seconds, Meta(description=(
        "from the check without an answer to the decision that the replica failed: time-outs, repetitions"))] = 0.0
    reopening_delay_s: Annotated[Seconds, Meta(description=(
        "from the first answer of a replica that failed to the first request that may be sent there"))] = 0.0

    failures: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "checks"}, description=(
        "checks without an answer, one after the other, before detection_delay_s of the last one begins; SGLang's "
        "gateway: 3"))] = 1
    successes: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "checks"}, description=(
        "checks that a replica that failed answers, one after the other, before reopening_delay_s begins; SGLang's "
        "gateway: 2"))] = 1

    def __post_init__(self):
        for key in ("failures", "successes"):
            if getattr(self, key) > 1 and self.check_interval_s == 0:
                raise ValueError(f"{key}: expected 1 with check_interval_s = 0, which has no single checks, found "
                                 f"{getattr(self, key)}")

    def detected_ns(self, now_ns: int) -> int:
        """Return when the gateway detects a failure at `now_ns`, if it lasts."""
        return self._after_checks_ns(now_ns, self.failures, self.detection_delay_s)

    def reopened_ns(self, now_ns: int) -> int:
        """Return when a replica that answers from `now_ns` on gets requests again."""
        return self._after_checks_ns(now_ns, self.successes, self.reopening_delay_s)

    def _after_checks_ns(self, now_ns: int, checks: int, delay_s: float) -> int:
        interval_ns = round(self.check_interval_s * 1e9)
        asked_ns = -(-now_ns // interval_ns) * interval_ns if interval_ns > 0 else now_ns
        return asked_ns + (checks - 1) * interval_ns + round(delay_s * 1e9)


def draw_ns(generator: "np.random.Generator", mean_s: float, law: Law, shape: float = 1.0) -> int:
    """Draw a time with this mean, at least 1 ns."""
    draws = {"constant": lambda: 1.0, "exponential": generator.standard_exponential,
             "weibull": lambda: generator.weibull(shape) / math.gamma(1 + 1 / shape)}
    return max(round(min(mean_s * draws[law](), MAX_S) * 1e9), 1)
