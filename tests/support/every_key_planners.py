"""As every_key_sections.py, for the keys of Dynamo's planner."""
from support.every_key import ABSENT, acts, refuses
from support.every_key_hand_over import APART, FEW, POOLS, SOME
from support.every_key_policies import GROWS, of


def scaling(**keys):
    """Return settings of whole replicas that scale, with keys of [autoscaling]."""
    return GROWS | {f"autoscaling__{key}": value for key, value in keys.items()}


BOUNDED = scaling(target="sla", prefill_profile=[FEW], decode_profile=[SOME])
LEVELS = [SOME, SOME | {"concurrency": 100, "itl_ms": 99.0, "tokens_per_s": 9e3}]
SLA = BOUNDED | scaling(decode_profile=LEVELS)
DEMAND = SLA | scaling(loop="throughput", throughput_interval_s=0.05)
LOADED = scaling(target="load", scale_up_kv_frac=0.3, scale_down_kv_frac=0.05)
PAIR = APART | {"pools": [pool | {"replicas": 2, "max_replicas": 4} for pool in POOLS], "autoscaling__interval_s": 0.02,
                "autoscaling__target": "load", "autoscaling__scale_up_queue_tokens": 50, "latency__base_us": 9000.0,
                "autoscaling__scale_down_queue_tokens": 1, "autoscaling__scale_up_kv_frac": 0.5,
                "autoscaling__scale_down_kv_frac": 0.1}
QUICK = DEMAND | scaling(prefill_profile=[FEW | {"tokens_per_s": 1e6}], decode_profile=[SOME])
FILTERED = QUICK | scaling(forecast="kalman", kalman={"min_points": 1})
PLANNERS = of("autoscaler:dynamo_planner", {
    "target": acts("throughput", "latency", **GROWS),
    "preset": acts("load_180_5", "disabled", **scaling(interval_s=0.05, target="latency") | {
        "autoscaling__interval_s": 5.0, "latency__base_us": 900_000.0}),
    "loop": acts("throughput", "load", **SLA | scaling(throughput_interval_s=ABSENT)),
    "throughput_interval_s": acts(0.05, 0.1, **DEMAND),
    "load_interval_s": acts(0.05, 0.1, **scaling(target="latency")),
    "scales": acts("all", "decode", **PAIR | {"autoscaling__target": "latency"} | {
        f"autoscaling__scale_{way}_{name}": ABSENT for way in ("up", "down") for name in ("queue_tokens", "kv_frac")}),
    "ttft_ms": acts(2.0, 5000.0, **SLA), "itl_ms": acts(1.0, 400.0, **SLA),
    "sensitivity": acts("aggressive", "conservative", **SLA),
    "scale_up_queue_tokens": acts(50, 5000, **PAIR), "scale_down_queue_tokens": acts(0, 119, **PAIR | {
        "autoscaling__scale_up_queue_tokens": 120}),
    "scale_up_kv_frac": acts(0.2, 0.9, **LOADED), "scale_down_kv_frac": acts(0.0, 0.29, **LOADED),
    "max_change": acts(1, 3, **DEMAND), "min_endpoint": acts(1, 5, **DEMAND),
    "min_gpus": acts(ABSENT, 6, **scaling()), "max_gpus": acts(ABSENT, 2, **scaling()),
    "forecast": acts("constant", "kalman", **DEMAND | scaling(kalman=ABSENT)),
    "forecast_log1p": acts(False, True, **FILTERED),
    **{f"kalman.{key}": acts(*values, **FILTERED)
       for key, values in {"level_variance": (0.01, 100.0), "trend_variance": (0.001, 1000.0),
                           "noise_variance": (0.01, 9999.0), "min_points": (1, 9)}.items()},
    "prophet_window": refuses(9, 'prophet_window: needs forecast = "prophet"', **DEMAND),
    "prefill_profile[].prompt_tokens": acts(1, 200, **DEMAND | scaling(
        prefill_profile=[FEW, FEW | {"prompt_tokens": 300, "tokens_per_s": 1e6}])),
    "prefill_profile[].ttft_ms": acts(1.0, 1e6, **SLA),
    "prefill_profile[].tokens_per_s": acts(10.0, 1e6, **DEMAND),
    "decode_profile[].context_tokens": acts(1, 200, **DEMAND | scaling(
        decode_profile=[SOME, SOME | {"context_tokens": 300, "tokens_per_s": 1e6}])),
    "decode_profile[].concurrency": acts(1, 99, **SLA | scaling(ttft_ms=1e6, itl_ms=7.0)),
    "decode_profile[].itl_ms": acts(0.1, 400.0, **BOUNDED),
    "decode_profile[].tokens_per_s": acts(10.0, 1e6, **QUICK)})

MIXED = scaling(interval_s=0.02, input_tokens=[64, 160], output_tokens=[8, 16], window_s=0.4, profiles=[
    {"pool": "default", "requests_per_s": [[90.0, 60.0], [40.0, 20.0]]}])
PAID = {"pools": [{"name": "cheap", "replicas": 1, "max_replicas": 4, "cost_per_hour": 1.0},
                  {"name": "dear", "replicas": 1, "max_replicas": 4, "cost_per_hour": 3.0}]}
BOTH = MIXED | PAID | scaling(profiles=[
    {"pool": "cheap", "requests_per_s": [[9.0, 6.0], [2.0, 1.0]]},
    {"pool": "dear", "requests_per_s": [[20.0, 15.0], [20.0, 12.0]]}], max_replicas=ABSENT)
PLANNERS |= of("autoscaler:mix", {
    "input_tokens": acts([64, 160], [120, 128], **MIXED), "output_tokens": acts([8, 16], [1, 2], **MIXED),
    "profiles[].pool": refuses("cheep", 'profiles: missing for pool "cheap"', **BOTH),
    "profiles[].requests_per_s": acts([[90.0, 60.0], [40.0, 20.0]], [[9.0, 9.0], [4.0, 2.0]], **MIXED),
    "slice_factor": acts(1, 9, **BOTH), "window_s": acts(0.04, 2.0, **MIXED)})

PLANNERS |= of("autoscaler:saturation_v1", {
    "kv_cache_threshold": acts(0.2, 0.9, **GROWS), "queue_threshold": acts(4.0, 30.0, **GROWS),
    "kv_spare_trigger": acts(0.01, 0.7, **GROWS), "queue_spare_trigger": acts(0.0, 4.9, **GROWS)})
PLANNERS |= of("autoscaler:saturation_v2", {
    "kv_cache_threshold": acts(0.1, 0.9, **GROWS), "queue_threshold": acts(1, 90, **GROWS),
    "scale_up_threshold": acts(0.1, 0.99, **GROWS), "scale_down_boundary": acts(0.01, 0.8, **GROWS)})

QUEUED = scaling(alpha=5.0, beta=0.5, gamma=0.001, learn=False, itl_ms=30.0)
PLANNERS |= of("autoscaler:queueing", {
    "alpha": acts(0.1, 20.0, **QUEUED), "beta": acts(0.01, 3.0, **QUEUED), "gamma": acts(0.0001, 0.2, **QUEUED),
    "learn": acts(True, False, **QUEUED), "ttft_ms": acts(20.0, 2000.0, **QUEUED),
    "itl_ms": acts(6.0, 400.0, **QUEUED)})

# Requests of 40 to 185 tokens, priorities 0 to 3, three SLO classes. Pool b is slower than a, c takes short texts.
SELECTED = {"pools": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1, "latency": {"base_us": 9000.0}},
                      {"name": "c", "replicas": 1, "engine": {"max_model_len": 100}}],
            "slo__classes": [{"name": "critical", "ttft_ms": 100.0, "tpot_ms": 9.0}], "slo__tpot_ms": 50.0}


def selection(**keys):
    """Return settings of pools that are selected."""
    return SELECTED | {f"cluster__pool_selection__{key}": value for key, value in keys.items()}


ROW, TWO = [["a", "b"]], {"max_tokens": 200, "cells": 2}
LENGTHS = selection(isl=TWO, table=[["a"], ["b"]])
FIRST_TOKEN = selection(ttft_ms={"max_ms": 130.0, "cells": 2}, table=ROW)
NEXT_TOKEN = selection(itl_ms={"max_ms": 30.0, "cells": 2}, table=ROW)
HIGH = {"min_priority": 2, "max_priority": 3, "pool": "b"}
OVERRIDDEN = selection(table=[["a"]], overrides=[HIGH])
PLANNERS |= {f"cluster.pool_selection.{key}": case for key, case in {
    "isl.min_tokens": acts(0, 90, **LENGTHS), "isl.max_tokens": acts(200, 350, **LENGTHS),
    "isl.cells": refuses(3, "table: expected 3 rows of 1 names", **LENGTHS),
    "ttft_ms.min_ms": acts(0.0, 90.0, **FIRST_TOKEN), "ttft_ms.max_ms": acts(130.0, 300.0, **FIRST_TOKEN),
    "ttft_ms.cells": refuses(3, "table: expected 1 rows of 3 names", **FIRST_TOKEN),
    "itl_ms.min_ms": acts(0.0, 8.0, **NEXT_TOKEN | {"cluster__pool_selection__itl_ms": {"max_ms": 12.0, "cells": 2}}),
    "itl_ms.max_ms": acts(12.0, 30.0, **NEXT_TOKEN),
    "itl_ms.cells": refuses(3, "table: expected 1 rows of 3 names", **NEXT_TOKEN),
    "table": acts([["a"]], [["b"]], **SELECTED),
    "overrides[].min_priority": acts(2, 3, **OVERRIDDEN), "overrides[].max_priority": acts(2, 3, **OVERRIDDEN),
    "overrides[].pool": acts("a", "b", **OVERRIDDEN),
    "too_long": acts([], ["a", "c"], **selection(table=[["c"]]))}.items()}

# Pool a loses its requests, and has no replica for those that come later.
GONE = selection(table=[["a"]]) | {"failures": [
    {"kind": "stop", "target": "pool", "pool": "a", "at_s": 0.05, "duration_s": 50.0,
     "on_failure": "lost"}]}
NEXT = GONE | {"cluster__fallbacks": [{"of": "a", "to": ["b"]}]}
PLANNERS |= {"cluster.pool_selection.retry": acts([], ["b", "a"], **GONE),
             "cluster.fallbacks[].of": acts("a", "c", **NEXT), "cluster.fallbacks[].to": acts(["b"], ["c"], **NEXT),
             "cluster.fallbacks[].on": acts(["lost"], ["rejected"], **NEXT)}

# Two pools for prompts, two for output; p1 and d1 are slower.
LEGS = APART | {"pools": [pool | {"name": f"{pool['name']}{i}", "replicas": 1, "latency": {"base_us": base_us}}
                          for pool in POOLS for i, base_us in enumerate((6000.0, 15_000.0))],
                "slo__classes": SELECTED["slo__classes"], "slo__tpot_ms": 50.0}


def legs(leg, **keys):
    """Return settings of pools that are selected for one leg, with keys of its table."""
    own = [["p0", "p1"]] if leg == "prefill" else [["d0", "d1"]]
    return LEGS | {f"cluster__leg_selection__{leg}__{key}": value for key, value in ({"table": own} | keys).items()}


BY_TTFT = legs("prefill", ttft_ms={"max_ms": 130.0, "cells": 2})
BY_ITL = legs("decode", itl_ms={"max_ms": 30.0, "cells": 2})
for role, lengths, each in (("prefill", "isl", "p"), ("decode", "context", "d")):
    KEY, COLUMN = f"cluster.leg_selection.{role}", [[f"{each}0"], [f"{each}1"]]
    BY_LENGTH = legs(role, **{lengths: TWO, "table": COLUMN})
    BY_PRIORITY = legs(role, table=COLUMN[:1], overrides=[HIGH | {"pool": f"{each}1"}])
    PLANNERS |= {f"{KEY}.{key}": case for key, case in {
        f"{lengths}.min_tokens": acts(0, 90, **BY_LENGTH), f"{lengths}.max_tokens": acts(200, 350, **BY_LENGTH),
        f"{lengths}.cells": refuses(3, "table: expected 3 rows of 1 names", **BY_LENGTH),
        "table": acts(COLUMN[:1], COLUMN[1:], **LEGS),
        "overrides[].min_priority": acts(2, 3, **BY_PRIORITY), "overrides[].max_priority": acts(2, 3, **BY_PRIORITY),
        "overrides[].pool": acts(f"{each}0", f"{each}1", **BY_PRIORITY)}.items()}
PLANNERS |= {
    "cluster.leg_selection.prefill.ttft_ms.min_ms": acts(0.0, 90.0, **BY_TTFT),
    "cluster.leg_selection.prefill.ttft_ms.max_ms": acts(130.0, 300.0, **BY_TTFT),
    "cluster.leg_selection.prefill.ttft_ms.cells": refuses(3, "table: expected 1 rows of 3 names", **BY_TTFT),
    "cluster.leg_selection.decode.itl_ms.min_ms": acts(0.0, 8.0, **BY_ITL | {
        "cluster__leg_selection__decode__itl_ms": {"max_ms": 12.0, "cells": 2}}),
    "cluster.leg_selection.decode.itl_ms.max_ms": acts(12.0, 30.0, **BY_ITL),
    "cluster.leg_selection.decode.itl_ms.cells": refuses(3, "table: expected 1 rows of 3 names", **BY_ITL)}
