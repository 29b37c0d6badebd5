"""An empty stretch in which all comes to rest leaves no trace: its length changes nothing behind it."""
import numpy as np
import pytest

from simulator.api import run

STAGE_S = 30.0
GAPS_S = (600.0, 6000.0)            # multiples of every interval below, longer than every window and repair
NS = 10**9
IDLE_W = 75.0

EXPERIMENT = """
name = "gap"
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
topology = {node = "dgx-h100"}

[workload]
type = "synthetic"
prompt_tokens = {distribution = "lognormal", mean = 600.0, std = 500.0}
output_tokens = {distribution = "lognormal", mean = 200.0, std = 150.0}

[cluster.routing]
policy = "least_loaded"

[power.h100-sxm-80gb]
idle_w = 75.0
prefill_w = 700.0
decode_w = 380.0
source = "an assumption"
"""
FIXED, ELASTIC = [{"name": "a", "replicas": 3}], [{"name": "a", "replicas": 3, "max_replicas": 5}]


def scaled(policy, **parameters):
    """Return what an autoscaler takes, with a window of hysteresis in each direction."""
    return {"pools": ELASTIC, "autoscaling": {
        "policy": policy, "interval_s": 5.0, "provisioning_delay": {"mean_s": 10.0},
        "scale_down_stabilization_window_s": 20.0, "scale_up_stabilization_window_s": 10.0, **parameters}}


CASES = {
    "nothing else": {},
    "utilisation": scaled("utilisation"),
    "blis": scaled("blis"),
    "queue": scaled("queue"),
    "slo_attainment": scaled("slo_attainment", ttft_ms=200.0),
    "a replica away while nobody is there": {
        "failures": [{"kind": "stop", "which": 1, "at_s": 100.0, "duration_s": 30.0}],
        "cluster.health": {"check_interval_s": 1.0, "detection_delay_s": 2.0, "reopening_delay_s": 5.0}},
    "a link that fails under load": {
        "failures": [{"kind": "link", "which": 1, "at_s": 20.0, "duration_s": 60.0}],
        "cluster.health": {"check_interval_s": 1.0, "detection_delay_s": 2.0}},
    "a replica that is slow": {
        "failures": [{"kind": "slow", "which": 1, "at_s": 10.0, "duration_s": 60.0, "on_failure": "migrate"}],
        "cluster.health": {"check_interval_s": 1.0},
        "cluster.rescheduling": {"policy": "rebalance", "bandwidth_gb_per_s": 50.0}},
    "rebalance": {"cluster.routing": {"policy": "round_robin"}, "cluster.rescheduling": {
        "policy": "rebalance", "least_difference": 0.0, "bandwidth_gb_per_s": 50.0}},
    "llumnix": {"cluster.routing": {"policy": "random"}, "cluster.rescheduling": {
        "policy": "llumnix", "bandwidth_gb_per_s": 50.0, "policies": ["neutral_load", "neutral_failover"],
        "neutral_load_metric": "num_requests", "neutral_load_threshold": 15.0, "load_balance_threshold": 2.0}},
    "token_bucket": {"cluster.admission": {"policy": "token_bucket", "refill_tokens_per_s": 20_000.0}},
    "stale news": {"cluster.routing": {"policy": "least_loaded", "metric": "waiting",
                                       "snapshot_refresh_interval_s": 1.0}},
    "dynamo": {"cluster.routing": {"policy": "dynamo"}},
    "weighted": {"cluster.routing": {"policy": "weighted"}},
}
INSTANTS = {"arrival_ns", "scheduled_arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns",
            "admitted_ns", "dispatched_ns"}
MOVE = {"rebalance", "llumnix"}


def run_with_gap(file, case, gap_s):
    """Return a result whose second stage begins after so long a pause."""
    stages = [{"rate_per_s": 40.0, "duration_s": STAGE_S}, {"rate_per_s": 40.0, "duration_s": STAGE_S}]
    stages[1]["interval_s"] = gap_s
    return run(file, {"pools": FIXED, "workload.load": {"mode": "stages", "stages": stages}} | CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_length_of_a_gap(case, tmp_path):
    """What comes behind it is served alike, instant by instant; who moves, moves under load; idle joules add up."""
    file = tmp_path / "gap.toml"
    file.write_text(EXPERIMENT)
    short, long = (run_with_gap(file, case, gap_s) for gap_s in GAPS_S)
    longer_ns = int(GAPS_S[1] - GAPS_S[0]) * NS
    second = short.requests["arrival_ns"] > int(STAGE_S + GAPS_S[0] / 2) * NS
    assert 500 < second.sum() < len(second) - 500
    for name in short.requests.dtype.names:
        a, b = short.requests[name], long.requests[name]
        is_instant = name in INSTANTS
        np.testing.assert_array_equal(np.where(second & (a >= 0), a + longer_ns, a) if is_instant else a, b, name)
    assert (case in MOVE) <= (short.summary["migrations"] > 0)
    watts = (long.summary["energy"]["energy_j"]["total"] - short.summary["energy"]["energy_j"]["total"]) / (
        GAPS_S[1] - GAPS_S[0]) / IDLE_W
    least = 1 if "autoscaling" in CASES[case] else 3
    assert watts == pytest.approx(least, rel=1e-6), "replicas that draw their idle power in the gap"
