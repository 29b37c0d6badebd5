"""`inferencex`: a point of the InferenceX (InferenceMAX) sweep, with equal lengths.

The dataset `random` of its own benchmark script: lengths from int(L ratio) to L, both included, for prompts and
outputs, from NumPy's global generator, seed 0; 10 requests for each of C slots, sent as fast as the slots allow, after
2 C warm-ups. Source: SemiAnalysisAI/InferenceX, benchmarks/benchmark_lib.sh and utils/bench_serving, commit 843c6254.
"""
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.domain.load import Warmup
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.presets.base import Drawn, Preset, PresetParameters, only

Length = Annotated[int, Meta(ge=1, le=MAX_TOKENS, extra={"unit": "tokens"})]
REQUESTS_PER_SLOT = 10
WARMUPS_PER_SLOT = 2


class InferencexParameters(PresetParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The point of the sweep; closed loop and number of requests follow from it."""

    isl: Annotated[Length, Meta(description="longest prompt")]
    osl: Annotated[Length, Meta(description="longest output")]
    ratio: Annotated[float, Meta(gt=0, le=1, description="shortest over longest")] = 0.8
    concurrency: Annotated[int, Meta(ge=1, le=10**7, description="slots, which is --max-concurrency")]

    def __post_init__(self):
        for key in ("isl", "osl"):
            if int(getattr(self, key) * self.ratio) < 1:
                raise ValueError(f"{key}: the shortest would have no token; raise ratio")

    @property
    def fixed_num_requests(self):
        """10 C."""
        return REQUESTS_PER_SLOT * self.concurrency

    @property
    def warmup_copies_of_first(self):
        """2 C."""
        return WARMUPS_PER_SLOT * self.concurrency

    @property
    def says_when(self):
        """A closed loop."""
        return "sends requests in a closed loop"

    def fill_load(self, given, bounds):
        """Return a closed loop of C slots."""
        return only(given, mode="concurrency", concurrency=self.concurrency)

    def fill_warmup(self, given, bounds):
        """Return copies of the first request."""
        return Warmup(copies_of_first=self.warmup_copies_of_first)


class Inferencex(Preset):
    """`inferencex`."""

    Parameters = InferencexParameters

    def __init__(self, parameters: InferencexParameters):
        self._parameters = parameters

    def draw(self, streams, count):
        """Return the requests: all prompts are drawn, then all outputs."""
        given, generator = self._parameters, np.random.RandomState(0)
        prompts, outputs = (generator.randint(int(longest * given.ratio), longest + 1, size=count).astype(np.int64)
                            for longest in (given.isl, given.osl))
        return Drawn(prompts, outputs)
