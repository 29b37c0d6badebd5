"""Llumnix's staleness filter and replicas that stand still before the gateway knows."""
import pytest

import simulator

EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 1000}
topology = {replicas = 2}
latency = {backend = "linear", base_us = 10_000.0}
workload = {type = "trace", path = "trace.csv"}
cluster.routing = {policy = "llumnix", instance_staleness_s = 5}
cluster.health = {detection_delay_s = 600.0}
[[failures]]
kind = "stop"
which = 0
at_s = 10.25
duration_s = 40.0
on_failure = "retry"
"""


@pytest.mark.parametrize("settings", [
    {}, {"engine.fast_forward": False}, {"cluster.routing.status_push_interval_s": 0.0,
                                         "cluster.routing.status_poll_interval_s": 0.0},
    {"cluster.routing.scheduling_policy": "flood"}, {"topology.data_parallel": 2}],
    ids=["plain", "stepwise", "live", "flood", "ranks"])
@pytest.mark.parametrize("every_s", [0.5, 3.0])
def test_one_that_stopped_while_it_was_idle_grows_stale(tmp_path, every_s, settings):
    # Each request takes 50 ms of its half second: whoever stops at 10.25 s has nothing to do. What it said last is
    # then; older than 5 whole seconds is 16.25 s, and at 50.25 s it answers again.
    times = [i * every_s for i in range(int(60 / every_s))]
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{time},20,5\n" for time in times))
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    found = simulator.run(tmp_path / "e.toml", overrides=settings)

    ranks = settings.get("topology.data_parallel", 1)
    replicas = [journey // ranks for journey in found.requests["replica"].tolist()]
    legs = found.legs
    sent = [(legs["replica"][i] // ranks, times[legs["request"][i]]) for i in range(len(legs))]
    meanwhile = [replica for replica, time in sent if 16.25 <= time < 50.25]
    assert set(meanwhile) == {1}
    assert len(meanwhile) == sum(16.25 <= time < 50.25 for time in times)
    assert len(replicas) == len(times)
