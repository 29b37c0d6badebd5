"""Dynamo's planner: forecasts, budgets and both loops, by worked numbers."""
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scaling.test_planner import DECODE, PREFILL
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.scaling.base import Observation, Variant
from simulator.scaling.dynamo import forecasts
from simulator.scaling.dynamo.budget import HOLD, NO_BOUND, RECONCILE, Band
from simulator.scaling.dynamo.core import Core, Decision, Replicas
from simulator.scaling.dynamo.forecasts import Kalman, KalmanKeys, Prophet, Series
from simulator.scaling.dynamo.load import thresholds_of_kv, thresholds_of_prefill
from simulator.scaling.dynamo.parameters import DynamoPlannerParameters
from simulator.scaling.dynamo.planner import DynamoPlanner
from simulator.scaling.dynamo.sla import DecodeSla, PrefillSla, WholeSla
from simulator.scaling.profile import Profile

ROOT = Path(__file__).parents[2]
FREE = Band(NO_BOUND, NO_BOUND, (1,), (1,))
SLA = {"target": "sla", "prefill_profile": PREFILL, "decode_profile": DECODE}


# ---- forecasts

def test_a_kalman_filter_follows_level_and_trend():
    # 100, 110: P- = [[2001, 1000], [1000, 1000.1]], K = (2001, 1000) / 2011, state (109.950, 4.973): level + trend.
    series = Kalman(KalmanKeys(min_points=2), log1p=False)
    for value in (0, 100, 110):             # a zero before the first request is no value
        series.add(value)

    assert series.forecast() == pytest.approx(100 + (2001 + 1000) / 2011 * 10)          # 114.923
    assert series.forecast() == series.forecast()       # until the next value
    series.add(120)
    assert series.forecast() == pytest.approx(129.708, abs=1e-3)


def test_few_values_forecast_the_last_one():
    series = Kalman(KalmanKeys(min_points=3), log1p=True)
    assert series.forecast() == 0.0
    for value in (7.0, math.nan):
        series.add(value)
    assert series.forecast() == 0.0         # a value that is none counts as 0
    assert Prophet(50, 180.0, log1p=False).forecast() == Series(log1p=False).forecast() == 0.0


def test_a_forecast_without_its_package_is_refused(monkeypatch):
    monkeypatch.setattr(forecasts.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'forecast: "arima" needs pmdarima, which is not installed: pip install'):
        DynamoPlannerParameters(**SLA, loop="throughput", forecast="arima")
    assert not forecasts.why_missing("kalman")


# ---- budgets

def test_two_kinds_are_cut_in_proportion():
    # 12 GPUs of 8: prefill floor(4 x 8 / 12) = 2, the other 4 GPUs go to decode; two of each kind are 12 GPUs.
    assert Band(NO_BOUND, 8, (2, 1), (1, 1)).clamp((4, 4)) == (2, 4)
    assert Band(NO_BOUND, 8, (2, 4), (2, 2)).clamp((4, 4)) == (0, 0)


def test_a_lower_bound_may_lack_the_largest_replica():
    band = Band(9, 16, (4, 1), (1, 1))
    assert band.lowest == 5
    assert band.holds((1, 1))
    assert not band.holds((0, 4))


def test_a_budget_never_turns_a_direction_round():
    band = Band(4, 8, (1, 1), (1, 1))
    assert band.guard((4, 4), (5, 4)) == ((4, 4), HOLD)         # full: no room
    assert band.guard((4, 4), (5, 3)) == ((5, 3), None)         # one gives, the other takes
    assert band.guard((2, 2), (1, 2)) == ((2, 2), HOLD)         # at the lower bound
    assert band.guard((7, 7), (7, 7)) == ((4, 4), RECONCILE)    # outside


# ---- throughput loop

def test_replicas_are_the_demand_over_what_one_serves():
    # 9,000 requests in 180 s are 50 a second, 4.2 a replica: 12; from 3 at most 11; of 2 GPUs each, 16 in all: 8.
    assert throughput(FREE, max_change=99) == Decision((12,), "scale")
    assert throughput(FREE) == Decision((11,), "scale")
    assert throughput(Band(NO_BOUND, 16, (2,), (1,))) == Decision((8,), "scale")


def throughput(band, max_change=8, ready=3):
    core = Core(band, max_change, has_throughput=True, has_load=False)
    return core.throughput(Replicas((ready,), (ready,), (0,)), 9000 / 180, [4.2])


def test_with_both_loops_the_demand_is_a_lower_bound():
    core = Core(FREE, 8, has_throughput=True, has_load=True)
    now = Replicas((4,), (4,), (0,))
    rule = thresholds_of_kv("throughput").verdict

    assert core.throughput(now, 6.0, [1.0]) == Decision(None, "set_lower_bound")
    assert core.load(now, [[0.1] * 4], [rule]) == Decision((6,), "scale_up")
    assert core.throughput(now, 3.0, [None]) == Decision(None, "model_not_ready")
    assert core.load(now, [[0.1] * 4], [rule]).counts == (4,)       # as the bound is what there was


# ---- load loop

@pytest.mark.parametrize(("target", "loads", "replicas"), [
    ("throughput", [0.5, 1.0], 3), ("throughput", [0.09, 0.0], 1), ("throughput", [0.1, 0.0], None),
    ("latency", [0.1, 0.0], 3), ("latency", [0.0, 0.0], 1), ("latency", [0.01, 0.0], None)])
def test_thresholds_of_prefill_replicas(target, loads, replicas):
    assert thresholds_of_prefill(target).verdict(loads, 1, may_stay=False) == replicas


@pytest.mark.parametrize(("target", "loads", "replicas"), [
    ("throughput", [1.01, 0.2], 3), ("throughput", [1.0, 0.2], None), ("throughput", [0.45, 0.3], 1),
    ("throughput", [0.55, 0.3], None),      # one would have 1.1
    ("latency", [0.41, 0.0], 3), ("latency", [0.09, 0.09], 1), ("latency", [0.1, 0.0], None)])
def test_thresholds_of_decode_replicas(target, loads, replicas):
    assert thresholds_of_kv(target).verdict(loads, 1, may_stay=False) == replicas


def test_given_thresholds_need_only_be_reached():
    rule = thresholds_of_kv("load", (0.9, 0.3))
    assert [rule.verdict([load] * 2, 1, may_stay=False) for load in (0.9, 0.89, 0.3)] == [3, None, 1]


def test_while_replicas_start_only_reductions_are_made():
    core, rule = Core(FREE, 8, has_throughput=False, has_load=True), thresholds_of_kv("throughput").verdict
    starting = Replicas((2,), (3,), (1,), is_starting=True)

    assert core.load(starting, [[1.5, 1.5]], [rule]).counts is None
    assert core.load(starting, [[0.1, 0.1]], [rule]) == Decision((1,), "scale_down")
    assert core.load(starting, [[0.55, 0.1]], [rule]).counts == (2,)       # without the third one
    assert core.load(Replicas((2,), (3,), (0,)), [[1.5, 1.5]], [rule]) == Decision(None, "scaling_in_progress")


def test_a_bound_on_the_first_token():
    # 10 tokens per ms, 100 ms without a queue, bound 500: 4,010 queued tokens are 501 ms. One less of three: queues
    # grow by a half, and may take 0.8 x 400 = 320 ms: 2,133 tokens now.
    rule = PrefillSla(100.0, 10.0, 0.0, 500.0, 0.8)

    assert [rule.verdict([one, 4010, 4010], 1, may_stay=False) for one in (4010, 4000)] == [4, None]
    assert [rule.verdict([0, 0, most], 1, may_stay=False) for most in (2130, 2140)] == [2, None]
    assert rule._replace(hit_rate=0.5).verdict([7990] * 2, 1, may_stay=False) is None


def test_a_bound_on_the_time_between_tokens():
    # At 1,000 tokens of context 10 requests have 10 ms, 20 have 20. Bound 15: 15,100 tokens are 15.1 ms. One less of
    # two doubles the tokens, and 0.8 x 15 = 12 ms are 12 requests: 6,000 tokens now.
    rule = DecodeSla(Profile(PREFILL, DECODE), 1000.0, 10**6, 15.0, 0.8)

    assert [rule.verdict([15_100, most], 1, may_stay=False) for most in (15_100, 15_000)] == [3, None]
    assert [rule.verdict([0, most], 1, may_stay=False) for most in (5990, 6010)] == [1, None]
    assert rule._replace(capacity_tokens=11_000).verdict([0, 5990], 1, may_stay=False) is None


def test_of_both_bounds_either_adds_and_both_must_allow_less():
    both = WholeSla(PrefillSla(100.0, 10.0, 0.0, 500.0, 0.8),
                    DecodeSla(Profile(PREFILL, DECODE), 1000.0, 10**6, 15.0, 0.8))

    assert both.verdict([(5000, 0), (5000, 0)], 1, may_stay=False) == 3
    assert both.verdict([(0, 16_000), (0, 16_000)], 1, may_stay=False) == 3
    assert both.verdict([(0, 5000), (0, 5000)], 1, may_stay=False) == 1
    assert both.verdict([(1500, 5000), (1500, 5000)], 1, may_stay=False) is None     # 13,000 tokens would decode


# ---- the autoscaler

def observed(ready, *, queued=0, tokens=0, role="both", now_s=5.0, starting=0, finished=0):
    states = np.zeros(ready, records.REPLICA_STATE)
    states["waiting_prefill_tokens"], states["running_tokens"] = queued, tokens
    seen = Variant(0, role, 1.0, 10_000, starting, 8, ready, states, np.zeros(ready, records.REPLICA_ACCOUNT), role,
                   context_tokens=4000)
    done = np.zeros(finished, records.REQUEST)
    done["status"], done["prompt_tokens"], done["output_tokens"] = records.COMPLETED, 1000, 100
    return Observation(round(now_s * 1e9), (seen,), 0, done)


def test_replicas_of_whole_requests_follow_their_kv_caches():
    policy = DynamoPlanner(DynamoPlannerParameters())

    assert policy.decide(observed(2, queued=4000, tokens=6001)) == {0: 1}
    assert policy.decide(observed(2, queued=1000, tokens=1000, now_s=10.0)) == {0: -1}
    assert policy.decide(observed(0, now_s=15.0)) == {0: 1}


def test_prefill_replicas_follow_their_queues():
    seen = [observed(1, queued=4000, role="prefill"), observed(1, tokens=9000, role="decode")]
    together = Observation(seen[0].now_ns, (seen[0].variants[0], replace(seen[1].variants[0], index=1)), 0,
                           seen[0].finished)

    assert DynamoPlanner(DynamoPlannerParameters()).decide(together) == {0: 1}
    assert DynamoPlanner(DynamoPlannerParameters(scales="decode", target="latency")).decide(together) == {1: 1}


def test_the_throughput_loop_has_its_own_interval():
    # 200 requests in 20 s: 10 a second. A replica: 1000 / 10,000 s a prompt and 100 / 1263.6 s an answer (of 1,050
    # tokens at 15 ms), 5.58 a second: 2.
    policy = DynamoPlanner(DynamoPlannerParameters(**SLA, loop="throughput", throughput_interval_s=20.0, itl_ms=15.0))

    assert [policy.decide(observed(1, finished=50, now_s=now_s)) for now_s in (5, 10, 15)] == [{}] * 3
    assert policy.decide(observed(1, finished=50, now_s=20)) == {0: 1}


@pytest.mark.parametrize(("keys", "clock_s", "decisions"), [
    ({"forecast": "kalman"}, 99.0, 4), ({"forecast": "kalman"}, 100.0, None), ({"forecast": "kalman"}, 19.0, None),
    ({"forecast": "kalman", "kalman": KalmanKeys(min_points=2)}, 39.0, 1), ({}, 99.0, None)])
def test_forecasts_without_enough_values_are_named(keys, clock_s, decisions):
    parameters = DynamoPlannerParameters(**SLA | keys, loop="throughput", throughput_interval_s=20.0)

    remarks = DynamoPlanner.unfounded(parameters, clock_s)
    assert [f"has {decisions}: the last value was the forecast" in each for each in remarks] == [True] * (
        decisions is not None)


def test_bounds_are_kept_once_lengths_are_known():
    # A prompt of 1,000 takes 100 ms, a queue of 5,000 another 500.
    policy = DynamoPlanner(DynamoPlannerParameters(**SLA, sensitivity="aggressive"))

    assert policy.decide(observed(2, queued=5000, finished=2)) == {}
    assert policy.decide(observed(2, queued=5000, finished=1, now_s=10.0)) == {0: 1}
    assert policy.decide(observed(2, tokens=1000, now_s=15.0)) == {0: -1}


def test_the_preset_disabled_decides_nothing():
    assert DynamoPlanner(DynamoPlannerParameters(preset="disabled")).decide(observed(0)) == {}


@pytest.mark.parametrize(("keys", "message"), [
    ({"loop": "both"}, 'target: expected "sla" with the throughput loop, found "throughput"'),
    ({"target": "sla"}, 'target: "sla" needs prefill_profile and decode_profile'),
    ({"ttft_ms": 3.0}, 'ttft_ms: needs target = "sla"'), ({"max_change": 3}, "max_change: needs the throughput loop"),
    ({"preset": "load_180_5", "loop": "load"}, "loop: needs no preset"),
    ({"target": "load", "scale_up_kv_frac": 0.5}, "scale_up_kv_frac, scale_down_kv_frac: give both"),
    ({"target": "load", "scale_up_kv_frac": 0.5, "scale_down_kv_frac": 0.5},
     "scale_down_kv_frac: expected less than scale_up_kv_frac = 0.5, found 0.5"),
    ({"min_gpus": 5, "max_gpus": 4}, "min_gpus: expected at most max_gpus = 4, found 5"),
    (SLA | {"loop": "throughput", "sensitivity": "default"}, "sensitivity: needs the load loop"),
    (SLA | {"loop": "throughput", "forecast_log1p": True}, "forecast_log1p: needs another forecast than constant"),
    (SLA | {"loop": "throughput", "kalman": KalmanKeys()}, 'kalman: needs forecast = "kalman"')])
def test_keys_that_would_not_act_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        DynamoPlannerParameters(**keys)


def test_keys_that_do_not_fit_the_interval_or_the_pools_are_refused():
    def faults(roles, **keys):
        pools = [SimpleNamespace(name=role, role=role) for role in roles]
        return dict(DynamoPlanner.faults(DynamoPlannerParameters(**keys), 15.0, pools))

    apart, whole = ("prefill", "decode"), ("both",)
    assert faults(whole, preset="load_180_10") == {
        "preset": "expected a multiple of interval_s = 15, found load_interval_s = 10"}
    assert faults(whole, scales="prefill") == {"scales": 'there is no pool of role "prefill"'}
    assert faults(whole, target="load") == {"scale_up_kv_frac": 'needed with target = "load" for pools of role both'}
    assert faults(apart, target="load", scale_up_kv_frac=0.9, scale_down_kv_frac=0.1) == {
        "scale_up_queue_tokens": 'needed with target = "load" for pools of role decode and prefill'}
    assert faults(whole, target="load", scale_up_kv_frac=0.9, scale_down_kv_frac=0.1, scale_up_queue_tokens=9,
                  scale_down_queue_tokens=1) == {"scale_up_queue_tokens": "acts on no pool of role both"}
    assert not faults(apart)


def test_without_an_interval_the_usual_one_has_to_fit():
    quickstart = ROOT / "configs/quickstart.toml"
    with pytest.raises(InputErrors, match="preset: expected a multiple of interval_s = 15, found load_inter"):
        load_experiment(quickstart, {"autoscaling.policy": "dynamo_planner", "autoscaling.preset": "load_180_10"})
    assert load_experiment(quickstart, {"autoscaling.policy": "dynamo_planner"}).autoscaling.interval_s is None
