"""vLLM's estimate of the memory of CUDA graphs: the law that a plan uses, against start-up logs of public servers.

Each log says "Profiling CUDA graph memory: PIECEWISE=..., FULL=..." and "Estimated CUDA graph memory: ... GiB total".
"""
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layer_groups import GroupRules
from simulator.domain.memory_plan import EngineLimits, groups_of, plan_within
from simulator.domain.memory_reserve import GIB, GRAPH_ERROR, GRAPH_LAYER_BYTES, RESERVES, reserve_of
from simulator.domain.parallelism import Parallelism
from simulator.domain.vllm_versions import VERSIONS
from simulator.latency.overheads.capture import CudaGraphParameters, num_graphs
from simulator.scheduling.vllm import Vllm
from tests.support.small_models import deploy


class Log(NamedTuple):
    """One server: layers on a rank, graphs of pieces and of whole iterations, the estimate; where the log was seen."""

    server: str
    layers: int
    pieces: int
    whole: int
    gib: float
    source: str


# Numbers of stored public files are those of the look-up store; row: of ../shared/data/memory_logs.
LOGS = (
    Log("Qwen2.5-7B, RTX 4090, 0.24", 28, 51, 35, 0.53, "row 58, file 54570340937"),
    Log("Qwen2.5-VL-7B, 0.23", 28, 51, 35, 0.53, "file 55021192520"),
    Log("Qwen3-0.6B int4, 40 GB, 0.19.1", 28, 51, 35, 0.55, "file 54187866445"),
    Log("Qwen3-0.6B, 32 sequences", 28, 11, 7, 0.08, "file 67306615881"),
    Log("Qwen3-8B, A100 40 GB, driver 535, 0.19.1", 36, 51, 35, 2.35, "file 57978845466"),
    Log("Qwen2.5-72B, TP 4 over PCIe, 0.19", 80, 51, 35, 2.73, "file 53041548781"),
    Log("Gemma-4-31B, B300, 0.26, first runner", 60, 51, 51, 0.76, "file 63390294774"),
    Log("Gemma-4-26B-A4B NVFP4, WSL, 0.19.2", 30, 51, 35, 0.83, "file 52072816508"),
    Log("Gemma-4-E4B, 24 GB, 0.22.1", 42, 51, 35, 0.79, "file 54492899325"),
    Log("Qwen3.5-9B, L40S, 0.19.0", 32, 51, 35, 0.78, "file 51781852921"),
    Log("Qwen3.5-35B-A3B fp8, GB10, 0.18.1", 40, 51, 35, 1.65, "file 55195690679"),
    Log("Qwen3.8-27B, GB10, 0.27.1", 64, 51, 35, 1.56, "file 61316607224"),
    Log("Qwen3.5-2B int4, 0.19.1", 24, 51, 51, 0.33, "file 54064687355"),
    Log("GLM-5.2, TP 4 with EP, 0.26", 78, 51, 51, 4.99, "file 61511710941"),
    Log("Gemma-4-31B class, 2 sequences, 0.21", 60, 3, 2, 0.26, "row 64, file 56816929356"),
    Log("Qwen3.6-27B int4, TP 2, RTX 3090", 64, 3, 2, 0.09, "row 62, noonghunna/club-3090#434"),
    Log("Qwen2.5-7B, 8 sequences, RTX 3090", 28, 5, 4, 0.35, "file 65863227652"),
)


def law(logs):
    """Return the law of these logs: the median of GiB for a layer in a graph."""
    each = median(row.gib / (row.layers * (row.pieces + row.whole)) for row in logs)
    return lambda row: each * row.layers * (row.pieces + row.whole)


def constant(logs):
    found = exp(fmean(log(row.gib) for row in logs))
    return lambda row: found


def left_out(kind):
    """Return (predicted, logged) of each log, by a law of all others."""
    return [(kind([other for other in LOGS if other is not row])(row), row.gib) for row in LOGS]


def times(pairs):
    """Return how many times they are apart, in the mean and at worst, and the mean difference in GiB."""
    apart = [abs(log(predicted / logged)) for predicted, logged in pairs]
    return exp(fmean(apart)), exp(max(apart)), fmean(abs(predicted - logged) for predicted, logged in pairs)


def test_the_law_predicts_a_log_that_it_has_not_seen_better_than_a_constant_does():
    by_law, by_constant, by_half = (times(pairs) for pairs in (
        left_out(law), left_out(constant), [(0.5, row.gib) for row in LOGS]))
    for row, (predicted, logged) in zip(LOGS, left_out(law), strict=True):
        print(f"{row.server:<44}{predicted:6.2f} GiB, logged {logged:5.2f}")
    print(f"law, constant, 0.5 GiB: {by_law}, {by_constant}, {by_half}")

    assert by_law == pytest.approx((1.66, 4.92, 0.49), abs=0.005)
    assert by_constant == pytest.approx((2.43, 9.55, 0.80), abs=0.005)
    assert by_half == pytest.approx((2.40, 9.98, 0.79), abs=0.005)


def test_a_plan_uses_the_median_of_all_logs_and_names_how_far_they_lie():
    assert law(LOGS)(Log("", 1, 1, 0, 0, "")) * GIB == pytest.approx(GRAPH_LAYER_BYTES, rel=0.01)
    assert times([(law(LOGS)(row), row.gib) for row in LOGS])[1] < GRAPH_ERROR


def graphs_of(**changes):
    parameters = Vllm.Parameters(**({"max_num_batched_tokens": 8192, "max_num_seqs": 256} | changes))
    return num_graphs(parameters, deploy())


def test_graphs_are_counted_as_the_logs_say():
    modes = {mode: graphs_of(cuda_graphs=CudaGraphParameters(mode=mode))
             for mode in ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")}

    assert modes == {"none": 0, "piecewise": 51, "full": 51, "full_decode_only": 35, "full_and_piecewise": 86}
    assert graphs_of(max_num_seqs=1024) == 102
    assert graphs_of(max_num_seqs=2) == 3 + 2       # row 64
    assert graphs_of(max_num_seqs=8) == 5 + 4


def test_a_stage_subtracts_graphs_of_its_own_layers_alone():
    model = load_model("llama-3.1-8b")
    limits = EngineLimits(block_size=16, max_model_len=16, max_num_batched_tokens=8192, max_num_seqs=256,
                          grouping=GroupRules())

    def planned(stages):
        deployment = Deployment(model=model, accelerator=load_accelerator("h100-sxm-80gb"),
                                parallelism=Parallelism(pipeline_parallel=stages))
        return plan_within(deployment, limits, groups_of(deployment, limits), reserve_of(num_graphs=86)).graph_bytes

    assert planned(1) == 86 * 32 * GRAPH_LAYER_BYTES
    assert planned(2) == planned(1) / 2


def test_versions_that_do_not_count_graphs_subtract_nothing():
    assert {version: bool(RESERVES[version].graph_layer_bytes) for version in VERSIONS if version in RESERVES} == {
        "0.10": False, "0.32": True, "0.33": True}
    assert msgspec.structs.replace(RESERVES["0.33"], num_graphs=86, given_graph_bytes=7.0).graph_bytes(32) == 7.0
