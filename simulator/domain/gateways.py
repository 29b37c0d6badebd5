"""Schema of [cluster.gateways], and measured durations of decisions."""
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta


class Measured(NamedTuple):
    """Measured cost of a gateway.

    decision_us : time of a decision. workers : decisions that an instance makes at once. note : how it was measured.
    """

    decision_us: float
    workers: int
    note: str


# Sources. litellm: docs.litellm.ai/docs/benchmarks, as of 2026: mean "LiteLLM Overhead Duration" with four instances
# of 4 CPUs; the page advises a worker for each CPU. llm-d: kubernetes-sigs/gateway-api-inference-extension, pull
# request 768 (2025): 0.2 ms, and 0.3 ms for the prefix scorer, with six servers.
MEASURED = {
    "litellm": Measured(3320.0, 4, (
        "3.32 ms is the mean overhead of LiteLLM with four instances at 1,170 requests/s; with two at 1,036 requests/s "
        "it was 14.74 ms, longer than four workers of 3.32 ms let requests wait")),
    "llm-d": Measured(500.0, 1, (
        "0.5 ms is the scheduling time of llm-d's endpoint picker with a prefix scorer, without the way of a request "
        "through Envoy; how many decisions it makes at once is not published, workers = 1 is an assumption"))}


class GatewaysParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instances of the gateway, and the time of their decisions, [cluster.gateways].

    Each instance has a router of its own, which counts the requests of its own instance alone. A decision occupies a
    worker of its instance for decision_us + decision_us_per_replica x replicas that can be routed to; requests wait
    for a worker in order of arrival. The router sees the replicas at the beginning of the decision, and the request is
    sent at its end.
    """

    count: Annotated[int, Meta(ge=1, le=1024, extra={"unit": "instances"}, description=(
        "instances of the gateway of each model, in each of `[cluster.regions]`, which do not share their state"))] = 1
    assignment: Annotated[Literal["round_robin", "random", "session"], Meta(description=(
        "instance of a request: round_robin: in turn; random: any; session: by a hash of the session, of a request "
        "without session by a hash of the request"))] = "round_robin"
    like: Annotated[Literal["litellm", "llm-d"] | None, Meta(description=(
        "defaults of decision_us and workers as measured: litellm: 3320 and 4; llm-d: 500 and 1"))] = None
    decision_us: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=(
        "time of a decision; absent: as `like` says, else 0"))] = None
    decision_us_per_replica: Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "us"}, description=(
        "further time of a decision for each replica that can be routed to"))] = 0.0
    workers: Annotated[Annotated[int, Meta(ge=1, le=65536)] | None, Meta(description=(
        "decisions that an instance makes at once; absent: as `like` says, else 1"))] = None

    def __post_init__(self):
        if self.count == 1 and self.assignment != "round_robin":
            raise ValueError("assignment: leave it out with count = 1")
        if not self.takes_time and self.workers is not None:
            raise ValueError("workers: leave it out where decisions take no time: decision_us and "
                             "decision_us_per_replica are 0")

    @property
    def decision_ns(self) -> float:
        """Return the constant part of the time of a decision."""
        usual = MEASURED[self.like].decision_us if self.like else 0.0
        return (usual if self.decision_us is None else self.decision_us) * 1e3

    @property
    def num_workers(self) -> int:
        """Return how many decisions an instance makes at once."""
        return self.workers or (MEASURED[self.like].workers if self.like else 1)

    @property
    def takes_time(self) -> bool:
        """Return whether decisions take time."""
        return self.decision_ns + self.decision_us_per_replica > 0
