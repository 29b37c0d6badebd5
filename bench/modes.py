"""The modes of a replica in real deployments, each on the traffic of the plain event loop."""
from math import inf
from typing import NamedTuple

from cases import Case

from simulator.domain.layer_groups import LayerGroup, LayerGroups
from simulator.kv.tiers.fifo_lane import FifoLane
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.settings import Offloading
from simulator.latency.overheads.capture import CudaGraphParameters
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.blis import Blis, BlisParameters
from simulator.scheduling.sglang import Sglang, SglangParameters
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_tables import LoraParameters, StructuredOutputParameters

ASYNC = VllmParameters(async_scheduling=True)
BLIS = {"scheduler": Blis, "parameters": BlisParameters()}
SGLANG = {"scheduler": Sglang, "parameters": SglangParameters(
    max_running_requests=256, chunked_prefill_size=8192, max_prefill_tokens=8192)}
LIGHT = {"num_requests": 5_000, "rate_per_s": 2.0}
SHARED = {"rate_per_s": 16.0, "system_prompts": (8, 512)}
HOST = Offloading(policy=Lru, chunks=32_768, block_bytes=2.0 * 2**20)        # of Llama-3.1-8B: 64 GiB


def host_tier(_workload):
    """Return host memory of a replica, at 50 GB/s either way."""
    return OffloadingTier(HOST, *(FifoLane(0.0, HOST.block_bytes / 50.0) for _ in range(2)))

FULL = LayerGroup(kind="full_attention", block_size=16)
WINDOW = LayerGroup(kind="sliding_attention", block_size=16, window=1024)
GEMMA = LayerGroups(groups=(*[WINDOW] * 5, FULL))
GPT_OSS = LayerGroups(groups=(LayerGroup(kind="sliding_attention", block_size=16, window=128), FULL))
LLAMA = LayerGroups(groups=(*[LayerGroup(kind="chunked_attention", block_size=16, window=8192)] * 3, FULL))
QWEN = LayerGroups(groups=(*[LayerGroup(kind="linear_attention", block_size=544, aligned=True)] * 3,
                           LayerGroup(kind="full_attention", block_size=544)), chunk_alignment=544)


class Mode(NamedTuple):
    """A case, and its target: multiples of the plain event loop with equal requests."""

    case: Case
    target: str


def _speculating(*acceptance, weights=(), is_async=False):
    return VllmParameters(async_scheduling=is_async, speculative=SpeculativeParameters(
        num_tokens=3, acceptance=AcceptanceTable(distribution=weights) if weights else acceptance))


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
    "`sglang`": Mode(Case(20_000, **SGLANG), "<= 2.5 x"),
    "`sglang`, KV pressure": Mode(Case(20_000, num_gpu_blocks=6500, **SGLANG), "<= 2.5 x"),
    "`sglang`, system prompts": Mode(Case(20_000, num_gpu_blocks=8000, **SGLANG, **SHARED), "<= 2.5 x"),
    "speculation, constant": Mode(Case(20_000, parameters=_speculating(1)), "<= 5 x"),
    "speculation, cyclic": Mode(Case(20_000, parameters=_speculating(1, 3, 0)), "<= 5 x"),
    "speculation, drawn": Mode(Case(20_000, parameters=_speculating(weights=(3, 2, 2, 1))), "<= 5 x"),
    "speculation, constant, `async_scheduling`": Mode(
        Case(20_000, parameters=_speculating(1, is_async=True)), "<= 4 x"),
    "speculation, cyclic, `async_scheduling`": Mode(
        Case(20_000, parameters=_speculating(1, 3, 0, is_async=True)), "<= 4 x"),
    "speculation, drawn, `async_scheduling`": Mode(
        Case(20_000, parameters=_speculating(weights=(3, 2, 2, 1), is_async=True)), "<= 4 x"),
    "speculation, KV pressure, `async_scheduling`": Mode(
        Case(20_000, parameters=_speculating(1, is_async=True), num_gpu_blocks=6500), "<= 4 x"),
    "groups: 5 windows of 1024": Mode(Case(20_000, layer_groups=GEMMA), "<= 3 x"),
    "groups: window of 128": Mode(Case(20_000, layer_groups=GPT_OSS), "<= 3 x"),
    "groups: 3 of chunks of 8192": Mode(Case(20_000, layer_groups=LLAMA), "<= 3 x"),
    "groups: 3 of states": Mode(Case(20_000, layer_groups=QWEN), "<= 3 x"),
    "groups: 5 windows of 1024, light load": Mode(Case(layer_groups=GEMMA, **LIGHT), "<= 3 x"),
    "groups: 5 windows of 1024, `async_scheduling`": Mode(
        Case(20_000, layer_groups=GEMMA, parameters=ASYNC), "<= 3 x"),
    "groups: 5 windows of 1024, system prompts": Mode(
        Case(20_000, layer_groups=GEMMA, num_gpu_blocks=60_000, **SHARED), "<= 5 x"),
    "groups: 5 windows of 1024, KV pressure": Mode(Case(20_000, layer_groups=GEMMA, num_gpu_blocks=30_000), "<= 5 x"),
    "groups: 3 of states, system prompts": Mode(
        Case(20_000, layer_groups=QWEN, num_gpu_blocks=2000, **SHARED), "<= 5 x"),
    "host tier": Mode(Case(20_000, num_gpu_blocks=12_000, tier=host_tier), "<= 1.5 x"),
    "host tier, KV pressure": Mode(Case(20_000, num_gpu_blocks=6500, tier=host_tier), "<= 1.5 x"),
    "host tier, system prompts": Mode(Case(20_000, num_gpu_blocks=8000, tier=host_tier, **SHARED), "<= 1.5 x"),
    "host tier, system prompts, KV pressure": Mode(
        Case(20_000, num_gpu_blocks=3500, tier=host_tier, **SHARED), "<= 1.5 x"),
    "CUDA graphs": Mode(Case(20_000, parameters=VllmParameters(
        async_scheduling=False, cuda_graphs=CudaGraphParameters())), "<= 1.5 x"),
    "LoRA, 40 adapters, room for all": Mode(Case(20_000, labels={"adapter": 40}, parameters=VllmParameters(
        async_scheduling=False, lora=LoraParameters(max_loras=40, adapter_mb=80.0, h2d_gb_per_s=50.0))), "<= 1.5 x"),
    "LoRA, 40 adapters, room for 8": Mode(Case(20_000, rate_per_s=12.0, labels={"adapter": 40}, parameters=(
        VllmParameters(async_scheduling=False, lora=LoraParameters(
            max_loras=8, adapter_mb=80.0, h2d_gb_per_s=50.0)))), "<= 1.5 x"),
    "LoRA, 64 adapters, room for 8, at once": Mode(Case(20_000, rate_per_s=inf, labels={"adapter": 64}, parameters=(
        VllmParameters(async_scheduling=False, lora=LoraParameters(
            max_loras=8, adapter_mb=80.0, h2d_gb_per_s=50.0)))), "<= 2 x"),
    "masks, 40 grammars": Mode(Case(20_000, labels={"grammar": 40}, parameters=VllmParameters(
        async_scheduling=False, structured_outputs=StructuredOutputParameters(compile_ms=5.0))), "<= 1.5 x"),
    "masks, a grammar for each request, two compiled at a time, at once": Mode(Case(
        20_000, rate_per_s=inf, labels={"grammar": 20_000}, parameters=VllmParameters(
            async_scheduling=False,
            structured_outputs=StructuredOutputParameters(compile_ms=150.0, cpus=4))), "<= 10 x"),
    "speculation, KV pressure": Mode(Case(20_000, parameters=_speculating(1), num_gpu_blocks=6500), "<= 5 x"),
}


def plain(case):
    """Return the plain event loop on the requests of a case, with as many blocks."""
    return Case(case.num_requests, rate_per_s=case.rate_per_s, num_gpu_blocks=case.num_gpu_blocks,
                system_prompts=case.system_prompts)
