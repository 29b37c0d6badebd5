"""Dynamo's policy file of the router's queue, and its PlannerConfig.

Sources: ai-dynamo/dynamo, lib/kv-router/src/scheduling/policy_config@0111b619.rs for the file; PlannerConfig of
ai-dynamo 1.6.1 for the planner, its names as recorded in shared/goldens/cluster_2026.
"""
import re
from collections.abc import Iterator
from typing import Any

from simulator import registry
from simulator.domain.autoscaling import Autoscaling
from simulator.domain.router_queue import QueueClass, RouterQueueParameters
from simulator.errors import InputErrors, KeyFault
from simulator.study.deployment.router_settings import Settings

PLACE = "autoscaling."
FAMILY = re.compile("[A-Za-z0-9_.-]+")
REST = "default"                # family of the requests without a queue of their own
NO_BOUND = -1
LIMITS = {"max_requests": "request_queue_limit_per_worker", "max_prompt_tokens": "raw_isl_token_queue_limit_per_worker",
          "max_cached_tokens": "cached_token_queue_limit_per_worker"}
THRESHOLDS = {"scale_up_queue_tokens": ("prefill_scale_up_queue_tokens", 1),
              "scale_down_queue_tokens": ("prefill_scale_down_queue_tokens", 1),
              "scale_up_kv_frac": ("decode_scale_up_kv_rate", 100),
              "scale_down_kv_frac": ("decode_scale_down_kv_rate", 100)}
KALMAN = {"level_variance": "kalman_q_level", "trend_variance": "kalman_q_trend", "noise_variance": "kalman_r",
          "min_points": "kalman_min_points"}
SAID = ("policy", "interval_s", "target", "preset", "loop", "throughput_interval_s", "load_interval_s", "scales",
        "ttft_ms", "itl_ms", "sensitivity", *THRESHOLDS, "max_change", "min_endpoint", "min_gpus", "max_gpus",
        "forecast", "forecast_log1p", *(f"kalman.{key}" for key in KALMAN), "prophet_window", "prefill_profile",
        "decode_profile")


def needs_file(queue: RouterQueueParameters | None) -> bool:
    """Return whether a queue has keys that only the policy file has."""
    if queue is None:
        return False
    return bool(queue.classes) or queue.threshold_tokens is not None or queue.busy_ratio != 1


def why_no_file(queue: RouterQueueParameters) -> str:
    """Return why the file cannot say a queue; empty: it can."""
    families = _families(queue)
    bounds = {tuple(sorted(one.min_tokens for one in own)) for own in families.values()}
    if len(bounds) > 1:
        return "the file has one list of min_tokens for all classes"
    if any(one.order == "lcfs" for own in families.values() for one in own):
        return "the file has no order lcfs"
    if not all(FAMILY.fullmatch(name) for name in families):
        return "names of classes are of letters, digits, _, . and -"
    return ""


def policy_file(queue: RouterQueueParameters) -> dict[str, Any]:
    """Return the document of a queue with an empty `why_no_file`."""
    families = _families(queue)
    buckets = sorted(one.min_tokens for one in next(iter(families.values())))
    return {"default_policy_family": _rest(queue),
            "uncached_isl_buckets": [{"min_tokens": least, "bucket": f"from_{least}"} for least in buckets],
            "policy_classes": [_class(family, one, queue) for family, own in families.items() for one in own]}


def has_planner(autoscaling: Autoscaling | None) -> bool:
    """Return whether an autoscaler is Dynamo's planner, with a loop.

    Without any Dynamo's refuses to start.
    """
    return (autoscaling is not None and autoscaling.policy == "dynamo_planner"
            and autoscaling.parameters.plan.loop != "none")


def planner(autoscaling: Autoscaling, roles: set[str]) -> Settings:
    """Return the PlannerConfig of `dynamo_planner`, without the sizes of engines.

    roles : of the pools.

    Raises
    ------
    InputErrors
        Intervals of fractions of seconds.
    """
    keys = autoscaling.parameters
    plan, interval_s = keys.plan, autoscaling.interval_s or registry.load("autoscaler", autoscaling.policy).interval_s
    load_s = plan.load_interval_s or interval_s
    if faults := [KeyFault(f"{PLACE}{key}: --as dynamo: expected whole seconds, found {value:g}") for key, value in (
            ("throughput_interval_s", plan.throughput_interval_s), ("load_interval_s", load_s)) if value != int(value)]:
        raise InputErrors(faults)
    by_demand = plan.loop in ("throughput", "both")
    found: dict[str, Any] = {
        "mode": keys.scales if keys.scales != "all" else "agg" if roles == {"both"} else "disagg", "backend": "vllm",
        "optimization_target": keys.target, "pre_deployment_sweeping_mode": "rapid" if by_demand else "none",
        "enable_throughput_scaling": by_demand, "enable_load_scaling": plan.loop in ("load", "both"),
        "throughput_adjustment_interval_seconds": int(plan.throughput_interval_s),
        "load_adjustment_interval_seconds": int(load_s), "min_endpoint": keys.min_endpoint,
        "max_gpu_budget": NO_BOUND if keys.max_gpus is None else keys.max_gpus,
        "min_gpu_budget": NO_BOUND if keys.min_gpus is None else keys.min_gpus}
    found |= dict(_of_target(keys)) | (dict(_of_forecast(keys)) if by_demand else {})
    changed = ((f"{PLACE}prefill_profile, {PLACE}decode_profile: Dynamo's planner makes its own",)
               if keys.prefill_profile else ())
    return Settings(found, frozenset(f"{PLACE}{key}" for key in SAID), changed)


def _of_target(keys: Any) -> Iterator[tuple[str, Any]]:
    if keys.target == "sla":
        share, least = keys.caution
        yield "ttft_ms", keys.ttft_ms or 500.0
        yield "itl_ms", keys.itl_ms or 50.0
        yield "load_scaling_down_sensitivity", round(100 * share)
        yield "load_min_observations", least
    for ours, (theirs, factor) in THRESHOLDS.items():
        if (value := getattr(keys, ours)) is not None:
            yield theirs, round(factor * value, 9) if factor > 1 else value


def _of_forecast(keys: Any) -> Iterator[tuple[str, Any]]:
    yield "max_throughput_scaling_replicas", keys.max_change or 8
    yield "load_predictor", keys.forecasts.kind
    if keys.forecast_log1p:
        yield "load_predictor_log1p", True
    if keys.forecasts.kind == "kalman":
        yield from ((theirs, getattr(keys.forecasts.kalman, ours)) for ours, theirs in KALMAN.items())
    if keys.forecasts.kind == "prophet":
        yield "prophet_window_size", keys.prophet_window or 50


def _families(queue: RouterQueueParameters) -> dict[str, list[QueueClass]]:
    """Return the queues by the family of their requests, in the order of min_tokens."""
    found: dict[str, list[QueueClass]] = {}
    for one in sorted(queue.lines, key=lambda each: each.min_tokens):
        found.setdefault(one.slo_class or _rest(queue), []).append(one)
    return found


def _rest(queue: RouterQueueParameters) -> str:
    """Return the family of the other requests, a name that no class has."""
    name, taken = REST, {one.slo_class for one in queue.classes}
    while name in taken:
        name = f"{name}_"
    return name


def _class(family: str, one: QueueClass, queue: RouterQueueParameters) -> dict[str, Any]:
    bucket = f"from_{one.min_tokens}"
    found = {"name": f"{family}-{bucket}", "policy_family": family, "cache_bucket": bucket, "queue_policy": one.order,
             "quantum": one.quantum}
    found |= {"prefill_busy_threshold": one.threshold_tokens} if one.threshold_tokens is not None else {}
    found |= {"prefill_busy_threshold_frac": one.threshold} if one.threshold is not None else {}
    found |= {"busy_worker_ratio": queue.busy_ratio} if queue.busy_ratio != 1 else {}
    return found | {theirs: limit for ours, theirs in LIMITS.items() if (limit := getattr(one, ours)) is not None}
