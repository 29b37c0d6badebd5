"""Dynamo's planner: forecasts, GPU budgets, and ticks of both loops as recorded.

All figures of all cases are compared: forecasts of the Kalman filter to 1e-9, those of ARIMA and Prophet to 1e-6 where
the libraries are installed, results of budgets, decisions, reasons and lower bounds.
"""
import json
import math

import pytest

from simulator.scaling.dynamo.budget import Band
from simulator.scaling.dynamo.core import Core, Replicas
from simulator.scaling.dynamo.forecasts import ForecastKeys, KalmanKeys, why_missing
from simulator.scaling.dynamo.load import thresholds_of_kv, thresholds_of_prefill
from support import goldens

FOLDER = goldens.GOLDENS / "cluster_2026"
WHAT = {name: sorted(FOLDER.glob(f"dynamo_planner_{name}*.jsonl")) for name in ("predictors", "budget", "ticks")}
SIDES = ("prefill", "decode")
KINDS = {"disagg": SIDES, "prefill": ("prefill",), "decode": ("decode",), "agg": ("decode",)}


def cases(what):
    """Return the recorded cases of one kind; skip the test if there are none."""
    if not WHAT[what]:
        pytest.skip(f"no recorded cases dynamo_planner_{what} under {FOLDER}")
    return [json.loads(line) for path in WHAT[what] for line in path.read_text().splitlines() if line.strip()]


# ---- forecasts

def series_of(case):
    given = case["config"]
    kalman = KalmanKeys(
        level_variance=given["kalman_q_level"], trend_variance=given["kalman_q_trend"],
        noise_variance=given["kalman_r"], min_points=given["kalman_min_points"])
    return ForecastKeys(case["predictor"], given["load_predictor_log1p"], kalman, given["prophet_window_size"],
                        given["throughput_adjustment_interval_seconds"]).series()


@pytest.mark.parametrize(("kind", "tolerance"), [
    ("constant", 0.0), ("kalman", 1e-9), ("arima", 1e-6), ("prophet", 1e-6)])
def test_forecasts_are_those_that_were_recorded(kind, tolerance):
    chosen = [case for case in cases("predictors") if case["predictor"] == kind]
    if why_missing(kind):
        pytest.skip(why_missing(kind))

    for case in chosen:
        series = series_of(case)
        for step, (value, forecast) in enumerate(case["steps"]):
            series.add(math.nan if value is None else value)
            assert series.forecast() == pytest.approx(forecast, rel=tolerance, abs=1e-12), (case["seed"], step)


# ---- budgets

def budget_call(call):
    """Return the result of a recorded call, as it was recorded."""
    name, given = call["f"], call["args"]
    if name in ("proportional_clamp_single", "guard_single_scaling_budget"):
        *counts, gpus, low, high, floor = given
        band = Band(low, high, (gpus,), (floor,))
        if name == "proportional_clamp_single":
            return band.clamp((counts[0],))[0]
        (count,), reason = band.guard((counts[0],), (counts[1],))
        return [count, reason]
    *counts, one, two, low, high, first, second = given
    band = Band(low, high, (one, two), (first, second))
    if name == "proportional_clamp_pair":
        return list(band.clamp(tuple(counts)))
    now, proposed = tuple(counts[:2]), tuple(counts[2:])
    if name == "fit_directional_budget_pair":
        return list(band.fit(now, proposed))
    fitted, reason = band.guard(now, proposed)
    return [*fitted, reason]


def test_budgets_are_kept_as_they_were():
    for case in cases("budget"):
        for call in case["calls"]:
            assert budget_call(call) == call["result"], call


# ---- ticks

def thresholds(config, kind):
    if kind == "prefill":
        return thresholds_of_prefill(config["optimization_target"], (
            config.get("prefill_scale_up_queue_tokens"), config.get("prefill_scale_down_queue_tokens")))
    return thresholds_of_kv(config["optimization_target"], tuple(
        config.get(f"decode_scale_{way}_kv_rate", 0) / 100 for way in ("up", "down")))


def loads(case, tick, kind):
    of_prefill, of_decode = case["capabilities"]["prefill"], case["capabilities"]["decode"]
    if kind == "prefill":
        longest = 1 if case["config"]["optimization_target"] == "load" else of_prefill["context_length"]
        return [queued / longest for queued in tick["prefill"]]
    with_queue = case["config"]["mode"] == "agg"
    return [(running + queued + (prefill if with_queue else 0)) / of_decode["max_kv_tokens"]
            for running, queued, prefill in tick["decode"]]


def replicas(tick, kinds):
    counts = tick["workers"]
    ready, expected, pending = (tuple(counts.get(f"{what}_num_{kind}", 0) for kind in kinds)
                                for what in ("ready", "expected", "pending"))
    return Replicas(ready, expected, pending, any(counts.get(f"pending_num_{kind}", 0) for kind in SIDES))


def core_of(case):
    config, kinds = case["config"], KINDS[case["config"]["mode"]]
    band = Band(config["min_gpu_budget"], config["max_gpu_budget"],
                tuple(case["capabilities"][kind]["num_gpu"] for kind in kinds), (config["min_endpoint"],) * len(kinds))
    return Core(band, config.get("max_throughput_scaling_replicas", 8),
                has_throughput=config["enable_throughput_scaling"], has_load=config["enable_load_scaling"])


def decisions(core, case, tick):
    """Return our decisions of a tick: {name of the recorded reason: Decision}."""
    mode, kinds = case["config"]["mode"], KINDS[case["config"]["mode"]]
    seen, made = replicas(tick, kinds), {}
    if "engine_rps" in tick:
        rates = [tick["engine_rps"]["agg" if mode == "agg" else kind] for kind in kinds]
        made["throughput_reason"] = core.throughput(seen, tick["predicted_num_req"] / tick["duration_s"], rates)
    if tick.get("prefill") is not None:
        made["load_reason"] = core.load(seen, [loads(case, tick, kind) for kind in kinds], [
            thresholds(case["config"], kind).verdict for kind in kinds], is_whole=mode == "agg")
    return made


def of_kinds(pair, kinds):
    return pair and tuple(pair[SIDES.index(kind)] for kind in kinds)


def test_ticks_are_decided_as_they_were():
    for case in cases("ticks"):
        core, kinds = core_of(case), KINDS[case["config"]["mode"]]
        for i, tick in enumerate(case["ticks"]):
            made = decisions(core, case, tick)
            *_, last = made.values()

            assert {name: decision.reason for name, decision in made.items()} == {name: tick[name] for name in made}, (
                case["seed"], i)
            assert last.counts == of_kinds(tick["decision"], kinds), (case["seed"], i)
            assert core.lower_bounds == of_kinds(tick["lower_bounds"], kinds), (case["seed"], i)
