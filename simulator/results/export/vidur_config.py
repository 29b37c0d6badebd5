"""config.json as Vidur writes it, with the values of an experiment of ours.

Keys are Vidur's. Values without an equal here, or that differ between pools, are null; the experiment itself,
with every default, is in `resolved`.
"""
import math
from collections.abc import Mapping
from typing import Any

from simulator.results.export.source import Source

_NONE: Mapping[str, Any] = {}


def config_of(source: Source) -> dict[str, Any]:
    """Return config.json of a run."""
    experiment = source.experiment
    pools = experiment.get("pools") or [experiment]

    def common(section: str, key: str):
        values = [pool.get(section, experiment.get(section, _NONE)).get(key) for pool in pools]
        return values[0] if all(value == values[0] for value in values) else None

    horizon_s = experiment.get("horizon_s", math.inf)
    workload = experiment.get("workload", _NONE)
    return {
        "seed": experiment.get("seed"),
        "time_limit": horizon_s if math.isfinite(horizon_s) else 0,       # 0: none, as in Vidur
        "cluster_config": {
            "num_replicas": len(source.summary.get("replicas", ())),
            "replica_config": _replica_config(common),
            "global_scheduler_config": {
                "name": experiment.get("cluster", _NONE).get("routing", _NONE).get("policy")},
            "replica_scheduler_config": _scheduler_config(common)},
        "request_generator_config": {
            "seed": experiment.get("seed"), "num_requests": source.summary["requests"].get("injected"),
            "duration": workload.get("duration_s"), "name": workload.get("type"),
            "trace_file": workload.get("path")},
        "execution_time_predictor_config": {"name": common("latency", "backend")},
        "resolved": _plain(experiment),
    }


def _replica_config(common) -> dict[str, Any]:
    used = common("engine", "gpu_memory_utilization")
    tensor, stages = common("topology", "tensor_parallel"), common("topology", "pipeline_parallel")
    return {
        "model_name": common("model", "name"),
        "memory_margin_fraction": None if used is None else round(1 - used, 12),
        "num_pipeline_stages": stages, "tensor_parallel_size": tensor,
        "device": common("hardware", "name"), "network_device": common("hardware", "node"),
        "world_size": tensor * stages if tensor and stages else None}


def _scheduler_config(common) -> dict[str, Any]:
    return {
        "batch_size_cap": common("engine", "max_num_seqs"), "block_size": common("engine", "block_size"),
        "watermark_blocks_fraction": common("engine", "watermark"), "num_blocks": common("engine", "num_gpu_blocks"),
        "max_tokens_in_batch": common("engine", "max_num_batched_tokens"), "name": common("engine", "scheduler")}


def _plain(value: Any) -> Any:
    """Return a value for JSON, which has no infinity: it becomes text."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
