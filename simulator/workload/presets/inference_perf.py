"""`inference_perf`: inference-perf's way to send requests: consecutive stages, `load.stages` of its file.

- load_type constant is not constant: int(rate x duration) exponential gaps, stretched so that the last request comes at
  the end of the stage. poisson: each second has a Poisson number of requests, with such gaps within the second, until
  there are int(rate x duration). concurrent: num_requests in concurrency_level slots.
- A stage begins when all requests of the stage before have ended, and an interval is over. The tool checks for their
  end once a second, and fills its queue for a second before each stage; no request runs meanwhile, and both are left
  out here.
- Each worker has at most `worker_max_concurrency` requests at once, and takes requests from one common queue.

Its generators have no seed; here they are the experiment's.

Source: kubernetes-sigs/inference-perf, commit 7de5ef2e, inference_perf/loadgen/load_timer.py and load_generator.py,
docs/config.md, docs/loadgen.md.
"""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.load import MAX_COUNT, Count, Positive, Rate, Seconds, Stage
from simulator.workload.presets.base import only
from simulator.workload.presets.own import Own, OwnParameters

PROCESSES = {"constant": "even_random", "poisson": "poisson_seconds"}
OF_RATES, OF_SLOTS = ("rate_per_s", "duration_s"), ("concurrency_level", "num_requests")


class InferencePerfStage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `stages`: a rate for a time, or slots for a number of requests."""

    rate_per_s: Annotated[Rate | None, Meta(description="requests a second")] = None
    duration_s: Annotated[Positive | None, Meta(description="length of the stage")] = None
    concurrency_level: Annotated[Count | None, Meta(extra={"unit": "slots"}, description="instead: slots")] = None
    num_requests: Annotated[Count | None, Meta(description="requests in these slots")] = None

    @property
    def count(self) -> int:
        """The number of requests that it sends."""
        return int(self.rate_per_s * self.duration_s) if self.num_requests is None else self.num_requests


class InferencePerfParameters(OwnParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stages, and the workers that send them."""

    load_type: Annotated[Literal["constant", "poisson", "concurrent"], Meta(description="load.type")] = "constant"
    stages: Annotated[tuple[InferencePerfStage, ...], Meta(min_length=1, description="load.stages, in order")]
    interval_s: Annotated[Seconds, Meta(description="pause between stages, load.interval")] = 1.0
    workers: Annotated[Count | None, Meta(extra={"unit": "processes"}, description=(
        "of rates: load.num_workers, which the tool sets to the CPU cores of its machine"))] = None
    worker_max_concurrency: Annotated[Count, Meta(extra={"unit": "requests"}, description=(
        "of rates: requests of one worker at once"))] = 100

    def __post_init__(self):
        is_loop = self.load_type == "concurrent"
        if is_loop and (self.workers is not None or self.worker_max_concurrency != 100):
            raise ValueError('workers, worker_max_concurrency: load_type = "concurrent" does not read them; '
                             "concurrency_level is what all workers have together")
        if not is_loop and self.workers is None:
            raise ValueError("workers: missing; the tool takes as many as its machine has CPU cores, and each has at "
                             f"most worker_max_concurrency = {self.worker_max_concurrency} requests at once")
        needed, strange = (OF_SLOTS, OF_RATES) if is_loop else (OF_RATES, OF_SLOTS)
        for number, stage in enumerate(self.stages):
            if any(getattr(stage, key) is None for key in needed) or any(getattr(stage, key) for key in strange):
                raise ValueError(f'stages[{number}]: load_type = "{self.load_type}" takes {" and ".join(needed)}')
            if stage.count < 1:
                raise ValueError(f"stages[{number}]: nobody comes: int({stage.rate_per_s:g} x {stage.duration_s:g}) "
                                 "is 0")

    @property
    def fixed_num_requests(self):
        """The requests of all stages."""
        return sum(stage.count for stage in self.stages)

    @property
    def says_when(self):
        """Stages, which replace [workload.arrival]."""
        return "has stages, which say when requests come"

    def check(self, bounds):
        """Refuse an end besides the ends of stages."""
        if bounds.duration_s is not None:
            raise ValueError("duration_s: each of stages has its own")

    def fill_load(self, given, bounds):
        """Return the stages, each of which waits for the end of the stage before."""
        return only(given, mode="stages", stages=tuple(map(self._stage, self.stages, range(len(self.stages)))))

    def _stage(self, given: InferencePerfStage, number: int) -> Stage:
        pause = {"interval_s": self.interval_s if number else 0.0}
        if self.load_type == "concurrent":
            return Stage(concurrency=given.concurrency_level, num_requests=given.num_requests, **pause)
        return Stage(rate_per_s=given.rate_per_s, process=PROCESSES[self.load_type], duration_s=given.duration_s,
                     drain=True, max_in_flight=min(self.workers * self.worker_max_concurrency, MAX_COUNT), **pause)


class InferencePerf(Own):
    """`inference_perf`: requests with lengths of the file, sent in stages."""

    Parameters = InferencePerfParameters
