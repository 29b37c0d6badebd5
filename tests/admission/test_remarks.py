"""Remarks on gateway queues, routers and autoscalers with keys that cannot do what they promise."""
import pytest

import simulator

EXPERIMENT = """
topology = {replicas = 2}
engine = {num_gpu_blocks = 1000, max_model_len = 512, max_num_seqs = 4}
latency = {backend = "linear", base_us = 20000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
workload = {type = "trace", path = "t.csv"}
"""
QUEUE = "cluster.gateway_queue."
DETECTOR = {"detector": "concurrency", "max_concurrency": 4}


def remarks(folder, keys, about):
    """Return the remarks on a part of a run of 8 requests that come within 7 ms and take 0.1 s each."""
    (folder / "a.toml").write_text(EXPERIMENT)
    (folder / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{0.001 * i:.3f},10,5\n" for i in range(8)))
    summary = simulator.run(folder / "a.toml", keys).summary
    assert summary["requests"]["completed"] == 8
    return [line for line in summary["diagnosis"] if line.startswith(about)]


@pytest.mark.parametrize(("keys", "remark"), [
    # one request at a time, since 1 of 8 is above the ceiling
    ({"limits": {"policy": "holdback", "least_ceiling": 0.1, "largest_ceiling": 0.1}},
     "cluster.gateway_queue: requests waited 0.35 s at the gateway in the mean, 95% of their time to first token, "
     "while at most 1 of the 8 requests that replicas may run at once were there: the detector or its ceilings keep "
     "replicas idle"),
    ({}, None)])
def test_ceilings_that_keep_replicas_idle_are_named(tmp_path, keys, remark):
    found = remarks(tmp_path, {QUEUE + "saturation": DETECTOR} | {QUEUE + key: value for key, value in keys.items()},
                    "cluster.gateway_queue")

    assert found == ([remark] if remark else [])


def test_reports_that_are_refreshed_too_late_are_named(tmp_path):
    keys = {QUEUE + "saturation": {"detector": "utilisation", "staleness_s": 0.01},
            "cluster.routing.snapshot_refresh_interval_s": 0.05}

    found = remarks(tmp_path, keys, "cluster.gateway_queue.saturation.staleness_s")
    assert len(found) == 1 and "the next at cluster.routing.snapshot_refresh_interval_s = 0.05" in found[0]


def test_assumptions_of_bytes_and_slack_are_named(tmp_path):
    keys = {QUEUE + "saturation": DETECTOR, QUEUE + "max_bytes": 10**6, QUEUE + "order": "slack", QUEUE + "slack": {
        "e2el_ms": 100.0, "profile": [{"prompt_tokens": 10, "output_tokens": 5, "latency_ms": 100.0}]}}

    found = remarks(tmp_path, keys, "cluster.gateway_queue")
    assert ["bytes_per_token = 4" in found[0], "saturation alone holds requests back" in found[1]] == [True, True]


@pytest.mark.parametrize(("keys", "remark"), [
    ({"policy": "queue", "interval_s": 5.0},
     'the run ended after 0.141 s, before the first decision of policy = "queue" at interval_s = 5'),
    ({"policy": "queue", "interval_s": 0.1}, None)])
def test_an_autoscaler_that_never_decides_is_named(tmp_path, keys, remark):
    scaling = {"max_replicas": 3, "target_waiting": 4.0} | keys
    found = remarks(tmp_path, {"autoscaling": scaling}, "autoscaling: the run")

    assert found == ([f"autoscaling: {remark}"] if remark else [])


def test_an_autoscaler_that_decided_where_nobody_was_served_is_not_said_to_be_late(tmp_path):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n3.0,10,5\n")
    result = simulator.run(tmp_path / "a.toml", {
        "workload.time_origin": "trace", "cluster.admission.policy": "reject_all",
        "autoscaling": {"policy": "queue", "interval_s": 1.0}})
    assert (result.summary["duration_s"], result.summary["clock_s"]) == (0.0, 3.0)
    assert not [line for line in result.summary["diagnosis"] if line.startswith("autoscaling: the run")]
