"""The modes of a replica that real deployments run, each on the traffic of the plain event loop."""
from typing import NamedTuple

from cases import Case

from simulator.scheduling.blis import Blis, BlisParameters
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters

ASYNC = VllmParameters(async_scheduling=True)
BLIS = {"scheduler": Blis, "parameters": BlisParameters()}
LIGHT = {"num_requests": 5_000, "rate_per_s": 2.0}
SHARED = {"rate_per_s": 16.0, "system_prompts": (8, 512)}


class Mode(NamedTuple):
    """What runs, and the promise: times the plain event loop with the same requests."""

    case: Case
    target: str


def _speculating(*acceptance):
    return VllmParameters(speculative=SpeculativeParameters(num_tokens=3, acceptance=acceptance))


MODES = {
    "`async_scheduling`": Mode(Case(20_000, parameters=ASYNC), "<= 2 x"),
    "`async_scheduling`, light load": Mode(Case(parameters=ASYNC, **LIGHT), "<= 2 x"),
    "`async_scheduling`, KV pressure": Mode(Case(20_000, parameters=ASYNC, num_gpu_blocks=6500), "<= 2 x"),
    "`pipeline_parallel` 2": Mode(Case(20_000, stages=2), "<= 3 x"),
    "`pipeline_parallel` 4": Mode(Case(20_000, stages=4), "<= 3 x"),
    "`pipeline_parallel` 4, light load": Mode(Case(stages=4, **LIGHT), "<= 3 x"),
    "`pipeline_parallel` 4, `async_scheduling`": Mode(Case(20_000, stages=4, parameters=ASYNC), "<= 3 x"),
    "`pipeline_parallel` 4, `async_scheduling`, light load": Mode(Case(stages=4, parameters=ASYNC, **LIGHT), "<= 3 x"),
    "`blis`": Mode(Case(20_000, **BLIS), "<= 4 x"),
    "`blis`, KV pressure": Mode(Case(20_000, num_gpu_blocks=6500, **BLIS), "<= 4 x"),
    "`blis`, system prompts, KV pressure": Mode(Case(20_000, num_gpu_blocks=3500, **BLIS, **SHARED), "<= 4 x"),
    "speculation, constant": Mode(Case(20_000, parameters=_speculating(1)), "<= 5 x"),
    "speculation, cyclic": Mode(Case(20_000, parameters=_speculating(1, 3, 0)), "<= 5 x"),
}


def plain(case):
    """Return the plain event loop on the requests of a case, with as many blocks."""
    return Case(case.num_requests, rate_per_s=case.rate_per_s, num_gpu_blocks=case.num_gpu_blocks,
                system_prompts=case.system_prompts)
