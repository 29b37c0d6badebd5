"""Requests that wait in front of Dynamo's router in whole experiments."""
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors

QUEUE = """
[topology]
replicas = 2
[engine]
num_gpu_blocks = 2000
max_model_len = 4096
max_num_seqs = 8
max_num_batched_tokens = 512
[latency]
backend = "linear"
base_us = 1000
per_prefill_token_us = 10
per_sequence_us = 0
per_context_token_us = 0
[cluster.routing]
policy = "dynamo"
[cluster.routing.queue]
threshold_tokens = 0
[workload]
type = "trace"
path = "requests.csv"
"""
SIX = """arrived_at,num_prefill_tokens,num_decode_tokens,strict_priority,priority_jump_s,deadline_s
0,400,50,,,
0,400,50,,,
0.001,100,2,,,
0.001,100,2,,1.5,
0.001,100,2,2,,
0.001,100,2,,,0.002
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs requests behind the queue."""
    (tmp_path / "queue.toml").write_text(QUEUE)

    def run(trace=SIX, **settings):
        (tmp_path / "requests.csv").write_text(trace)
        return simulator.run(tmp_path / "queue.toml", {
            key.replace("__", "."): value for key, value in settings.items()})
    return run


def test_requests_wait_until_a_prefill_ends(run):
    # Prefills of 400 tokens end after 1 + 4 ms: both replicas are idle then, and the most urgent goes to the first
    # that reports it. The last client gives up at 3 ms.
    results = run()
    requests = results.requests

    assert requests["status"].tolist() == [3, 3, 3, 3, 3, 6]
    waited_ms = [(each["enqueued_ns"] - each["arrival_ns"]) / 1e6 for each in requests]
    assert waited_ms[:2] == [0, 0]
    assert waited_ms[4] == 4.0                          # strict priority
    assert waited_ms[3] == 4.0                          # a jump: the second replica, at the same instant
    assert waited_ms[2] > 4.0


def test_fast_forward_changes_nothing(run):
    draw = np.random.default_rng(5)
    rows = [f"{0.002 * i:.4f},{draw.integers(20, 900)},{draw.integers(1, 60)},{draw.integers(3)},{draw.integers(2)},"
            for i in range(150)]
    trace = "\n".join([SIX.splitlines()[0], *rows]) + "\n"
    for order in ("fcfs", "lcfs", "wspt"):
        settings = {"cluster__routing__queue__order": order, "cluster__routing__queue__threshold_tokens": 300}
        found = [run(trace, engine__fast_forward=fast, **settings).requests for fast in (True, False)]
        assert found[0].tobytes() == found[1].tobytes()
        assert (found[0]["status"] == 3).all()


def test_a_full_queue_rejects(run):
    results = run(cluster__routing__queue__classes=[{"max_requests": 1}])
    # Two replicas: a third request does not fit, nor does a fourth.
    assert results.requests["status"].tolist() == [3, 3, 3, 3, 4, 4]
    assert results.summary["requests"]["rejected"] == 2


@pytest.mark.parametrize(("settings", "message"), [
    ({"cluster__routing__policy": "round_robin"}, r'cluster.routing.policy: expected "dynamo".*found "round_robin"'),
    ({"cluster__routing__load": "replicas"}, r'cluster.routing.load: expected "router".*found "replicas"'),
    ({"cluster__routing__latency_s": 0.1}, r"cluster.routing.latency_s: expected 0.*found 0.1"),
    ({"cluster__routing__snapshot_refresh_interval_s": 0.1}, r"snapshot_refresh_interval_s: expected 0.*found 0.1"),
    ({"cluster__routing__queue": {"threshold_tokens": None, "busy_ratio": 0.5}}, "threshold or threshold_tokens"),
])
def test_what_the_queue_cannot_do_is_refused(run, settings, message):
    with pytest.raises(InputErrors, match=message):
        run(**settings)
