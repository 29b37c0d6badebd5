"""What goes wrong with replicas, and how the gateway learns of it: what an experiment says of them."""
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
    """What goes wrong, once at a time or again and again, one of [[failures]].

    A stop loses the KV cache, a lost link does not: without it a replica stands still, with it again it goes on. A slow
    replica takes longer for each iteration that begins while it is slow.
    """

    kind: Annotated[Literal["stop", "slow", "link"], Meta(description=(
        "the replica stops and starts again; its iterations take longer; its link is lost"))]
    target: Annotated[Literal["replica", "rank", "node", "unit", "pool"], Meta(description=(
        "what fails as one: all replicas on it; a data-parallel rank: a stop takes those with it that one front end "
        "drives, a stop or a lost link those in lock step"))] = "replica"
    which: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | Literal["any", "each"], Meta(description=(
        "its number in the cluster; any: one that serves, drawn each time; each: every one, on its own"))] = "any"
    pool: Annotated[str | None, Meta(description="only in this pool; default: in all of them")] = None
    at_s: Annotated[Seconds | None, Meta(description="it happens once, then")] = None
    mtbf_s: Annotated[Mean | None, Meta(description=(
        "mean time from the start, and from each repair, to a failure"))] = None
    mtbf_law: Annotated[Law, Meta(description="how these times are distributed")] = "exponential"
    mtbf_shape: Annotated[Shape, Meta(description=(
        "of weibull; below 1: the longer it works, the less likely it fails"))] = 1.0
    duration_s: Annotated[Mean | None, Meta(description="how long it lasts; without mttr_s neither: for ever")] = None
    mttr_s: Annotated[Mean | None, Meta(description="instead: mean time to repair")] = None
    mttr_law: Annotated[Law, Meta(description="how these times are distributed")] = "exponential"
    mttr_shape: Annotated[Shape, Meta(description="of weibull")] = 1.0
    slow_factor: Annotated[float, Meta(gt=0, le=1e6, description=(
        "slow: iterations take so many times as long, host time included"))] = 2.0
    on_failure: Annotated[Literal["retry", "restart", "lost", "migrate"], Meta(description=(
        "what becomes of its requests once the gateway knows: they go elsewhere, where prompt and tokens so far are "
        "computed again; they begin again, what was streamed is void and time to first token runs on; they are "
        "dropped; slow alone, where it closes the replica too: they move as [cluster.rescheduling] says, and stay if "
        "they cannot. A slow replica keeps its requests otherwise"))] = "retry"
    max_retries: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "a request that was sent elsewhere so often is dropped the next time"))] = 3
    name: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description=(
        "of its random stream; default: its place among the failures"))] = None

    def __post_init__(self):
        if (self.at_s is None) == (self.mtbf_s is None):
            raise ValueError("give either at_s or mtbf_s")
        if self.duration_s is not None and self.mttr_s is not None:
            raise ValueError("give duration_s or mttr_s, not both")
        if self.on_failure == "migrate" and self.kind != "slow":
            raise ValueError('on_failure = "migrate" takes kind = "slow": no KV can be fetched from a replica that '
                             "has stopped or lost its link")
        if self.target == "pool" and (self.pool is None or self.which != "any"):
            raise ValueError('target = "pool" takes the name of the pool as pool, and no which')

    def time_to_failure_ns(self, generator: "np.random.Generator") -> int:
        """Draw how long it takes to the next failure."""
        return draw_ns(generator, self.mtbf_s, self.mtbf_law, self.mtbf_shape)

    def duration_ns(self, generator: "np.random.Generator") -> int | None:
        """Draw how long a failure lasts; None: for ever."""
        if self.mttr_s is not None:
            return draw_ns(generator, self.mttr_s, self.mttr_law, self.mttr_shape)
        return None if self.duration_s is None else max(round(self.duration_s * 1e9), 1)


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the gateway learns that a replica does not answer, [cluster.health].

    Until then it may send requests there, which stay with those that were there. A replica that answers again before
    anybody noticed is never closed.
    """

    check_interval_s: Annotated[Seconds, Meta(description=(
        "replicas are asked at 0, then again after each such time; 0: at any time"))] = 0.0
    detection_delay_s: Annotated[Seconds, Meta(description=(
        "from the first question without an answer to the certainty: time-outs, repetitions"))] = 0.0
    reopening_delay_s: Annotated[Seconds, Meta(description=(
        "from the first answer of a replica that failed to the first request that may go there"))] = 0.0

    def noticed_ns(self, now_ns: int, delay_s: float) -> int:
        """Return when a change of `now_ns` is acted upon: a delay after the next question."""
        interval_ns = round(self.check_interval_s * 1e9)
        asked_ns = -(-now_ns // interval_ns) * interval_ns if interval_ns > 0 else now_ns
        return asked_ns + round(delay_s * 1e9)


def draw_ns(generator: "np.random.Generator", mean_s: float, law: Law, shape: float = 1.0) -> int:
    """Draw a time with this mean, at least 1 ns."""
    draws = {"constant": lambda: 1.0, "exponential": generator.standard_exponential,
             "weibull": lambda: generator.weibull(shape) / math.gamma(1 + 1 / shape)}
    return max(round(min(mean_s * draws[law](), MAX_S) * 1e9), 1)
