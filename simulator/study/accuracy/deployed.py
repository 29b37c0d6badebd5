"""Columns of a table of runs that describe the server: its engine, its options, its pools.

Columns, all optional; an empty cell leaves the engine's default:

- framework: vllm, sglang or trtllm, which chooses the scheduler; absent: the data set's, by default vllm.
- version, or vllm_version: of vLLM, a release, which chooses the kernels that `operators` prices.
- gpu_memory_utilization: the engine's share of memory under that engine's own name for it.
- options under the names of keys of [engine]; cuda_graph_mode, cuda_graph_backend_prefill: graphs.
- mode = disaggregated: replicas and parallel sizes of two pools, prefill_* and decode_*.

A pool with data-parallel attention, and a server of TensorRT-LLM with two pools, has no scheduler here that moves KV:
with `stand_in` of the reader, vLLM's scheduler and NIXL replay them.
"""
import re
from collections.abc import Callable, Mapping
from typing import Any

SCHEDULERS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
SHARES = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static", "trtllm": "free_gpu_memory_fraction"}
MOST_RUNNING = {"vllm": "max_num_seqs", "sglang": "max_running_requests", "trtllm": "max_batch_size"}
# Framework -> columns that are keys of [engine], whole numbers.
OPTIONS = {"vllm": ("max_num_batched_tokens",),
           "sglang": ("chunked_prefill_size", "max_prefill_tokens", "scheduler_recv_interval"),
           "trtllm": ("max_batch_size", "max_num_tokens")}
PAGES = {"sglang": 1, "trtllm": 32}
RELEASE = re.compile(r"\d+\.\d+\.\d+")
ROLES = ("prefill", "decode")
SIZES = ("replicas", "tensor_parallel", "data_parallel", "expert_parallel")


def framework_of(row: Mapping[str, str], fault: Callable[[str], None]) -> str:
    """Return the framework of a row; an unknown one is a fault."""
    found = row.get("framework") or "vllm"
    if found not in SCHEDULERS:
        fault(f"framework: expected {', '.join(SCHEDULERS)}, found {found!r}")
        return "vllm"
    return found


def is_split(row: Mapping[str, str]) -> bool:
    """Return whether prompts and decodes are on different replicas."""
    return row.get("mode") == "disaggregated"


def engine_of(row: Mapping[str, str], framework: str, most_running: int, stands_in: bool) -> dict[str, Any]:
    """Return [engine]: the scheduler, and the options that are known.

    stands_in : vLLM's scheduler is used for any framework.
    """
    engine: dict[str, Any] = {}
    if row.get("framework"):
        engine["scheduler"] = "vllm" if stands_in else SCHEDULERS[framework]
    if stands_in:
        framework = "vllm"
    elif framework in PAGES:
        engine["block_size"] = PAGES[framework]
    engine[MOST_RUNNING[framework]] = most_running
    for name in OPTIONS[framework]:
        if row.get(name):
            engine[name] = int(row[name])
    if row.get("gpu_memory_utilization"):
        engine[SHARES[framework]] = float(row["gpu_memory_utilization"])
    if framework == "vllm":
        if row.get("async_scheduling"):
            engine["async_scheduling"] = row["async_scheduling"] == "true"
        if row.get("cuda_graph_mode"):
            engine["cuda_graphs"] = {"mode": row["cuda_graph_mode"]}
    return engine


def backends_of(row: Mapping[str, str], framework: str) -> dict[str, dict[str, Any]]:
    """Return backend -> keys of [latency] that the engine's version decides."""
    version = row.get("version") or row.get("vllm_version") or ""
    if framework == "vllm" and RELEASE.fullmatch(version):
        return {"operators": {"engine_version": version}}
    return {}


def pools_of(row: Mapping[str, str], framework: str, stands_in: bool, fault: Callable[[str], None]) -> dict[str, Any]:
    """Return [[pools]] and [kv_transfer] of a row with two pools."""
    pools = []
    for role in ROLES:
        sizes = {}
        for size in SIZES:
            text = row.get(f"{role}_{size}") or ""
            if not (text.isascii() and text.isdecimal() and int(text) >= 1):
                fault(f"{role}_{size}: expected a whole number of at least 1, found {text!r}")
                text = "1"
            if int(text) > 1 or size in ("replicas", "tensor_parallel"):
                sizes[size] = int(text)
        replicas = sizes.pop("replicas")
        if sizes.get("expert_parallel"):        # of all ranks, as the engines have it
            sizes["expert_parallel"] = sizes["tensor_parallel"] * sizes.get("data_parallel", 1)
        pool = {"name": role, "role": role, "replicas": replicas, "topology": sizes}
        if stands_in and sizes.get("data_parallel"):
            pool["engine"] = {"async_scheduling": False}        # the only one with KV transfer between such ranks
        pools.append(pool)
    return {"pools": pools, "kv_transfer": {"protocol": "nixl" if stands_in or framework != "sglang" else "sglang"}}
