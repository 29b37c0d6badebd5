"""[cluster.rescheduling] in experiment files."""
import json

import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

BASE = """
[engine]
num_gpu_blocks = 200
max_num_seqs = 16
max_model_len = 2048
[latency]
backend = "linear"
[topology]
replicas = 3
[workload]
type = "synthetic"
num_requests = 300
[workload.arrival]
process = "gamma"
rate_per_s = 20.0
cv = 3.0
[workload.prompt_tokens]
distribution = "uniform"
min = 10
max = 400
[workload.output_tokens]
distribution = "uniform"
min = 1
max = 300
"""
LINK = "kv_bytes_per_token = 131072\nbandwidth_gb_per_s = 10.0\ninterval_s = 0.05\n"


def run(tmp_path, more, overrides=None):
    path = tmp_path / "move.toml"
    path.write_text(BASE + more)
    return simulator.run(path, overrides=overrides or {})


@pytest.mark.parametrize("mode", ["live", "blocking", "recompute"])
@pytest.mark.parametrize("policy", ["rebalance", "llumnix"])
def test_requests_move_and_all_are_served(tmp_path, policy, mode):
    own = {"rebalance": "least_difference = 0.1", "llumnix": (
        'policies = ["neutral_load"]\nneutral_load_threshold = 0.5\nload_balance_threshold = 0.1\n'
        'req_select_rule = "NUM_REQ"\nreq_select_order = "LCR"\nreq_select_value = 1')}[policy]
    result = run(tmp_path, f'[cluster.rescheduling]\npolicy = "{policy}"\nmode = "{mode}"\n{LINK}{own}\n')
    assert result.summary["requests"]["completed"] == 300
    assert result.summary["migrations"] > 5


@pytest.mark.parametrize("mode", ["live", "blocking", "recompute"])
def test_moves_and_failures_lose_nobody_however_they_are_computed(tmp_path, mode):
    failures = """
[[failures]]
kind = "stop"
which = "each"
mtbf_s = 3.0
mttr_s = 0.5
[[failures]]
kind = "link"
which = 1
mtbf_s = 2.0
mttr_s = 0.3
[cluster.health]
detection_delay_s = 0.4
"""
    moves = (f'[cluster.rescheduling]\nmode = "{mode}"\nlatency_s = 0.003\nleast_difference = 0.05\n'
             f"max_migrations_in = 3\nmax_migrations_out = 3\n{LINK}")
    result = run(tmp_path, moves + failures)
    requests = result.requests
    assert np.isin(requests["status"], [records.COMPLETED, records.DROPPED, records.REJECTED, records.FAILED]).all()
    assert result.summary["migrations"] > 5
    assert result.summary["retries"] > 5
    again = run(tmp_path, moves + failures, {"engine.fast_forward": False})
    np.testing.assert_array_equal(again.requests, requests)
    assert again.summary["itl_ms"] == result.summary["itl_ms"]


def test_a_replica_that_is_to_go_goes_sooner_when_its_requests_move(tmp_path):
    scaling = "[autoscaling]\npolicy = 'utilisation'\ntarget = 0.99\ninterval_s = 1.0\n"
    moving = f"[cluster.rescheduling]\nleast_difference = 1.0\nmax_migrations_in = 4\nmax_migrations_out = 4\n{LINK}"
    gone_ns = {}
    for drain in ("finish", "migrate"):
        result = run(tmp_path, f"{moving}{scaling}drain = '{drain}'\n", {"engine.num_gpu_blocks": 2000})
        assert result.summary["requests"]["completed"] == 300
        assert (result.summary["migrations"] > 0) == (drain == "migrate")
        off = result.lifecycle["state"] == records.STAGE_NAMES.index("off")
        gone_ns[drain] = result.lifecycle["time_ns"][off].min()
    assert 1_000_000_000 < gone_ns["migrate"] < gone_ns["finish"]


SLOW = """
[[failures]]
kind = "slow"
which = 1
at_s = 2.0
duration_s = 6.0
slow_factor = 20.0
on_failure = "%s"
[cluster.health]
detection_delay_s = 0.5
reopening_delay_s = 0.25
"""


@pytest.mark.parametrize("mode", ["live", "blocking", "recompute"])
def test_requests_move_off_a_slow_replica_and_come_back_when_it_is_well(tmp_path, mode):
    moving = (f'[cluster.rescheduling]\nleast_difference = 1.0\nmode = "{mode}"\n'
              f"max_migrations_in = 4\nmax_migrations_out = 8\n{LINK}")
    room = {"engine.num_gpu_blocks": 2000}
    stay, move = (run(tmp_path, moving + SLOW % policy, room) for policy in ("retry", "migrate"))
    assert stay.summary["migrations"] == 0
    assert move.summary["migrations"] > 1
    assert move.summary["requests"]["completed"] == 300
    assert move.summary["e2el_ms"]["p99"] < 0.7 * stay.summary["e2el_ms"]["p99"]
    changes = move.lifecycle[(move.lifecycle["replica"] == 1) & (move.lifecycle["time_ns"] > 0)]
    assert [(row["time_ns"] / 1e9, records.STAGE_NAMES[row["state"]], records.LIFECYCLE_CAUSES[row["cause"]])
            for row in changes] == [
        (2.0, "slow", "failure"), (2.5, "slow", "detection"), (8.0, "up", "recovery"), (8.25, "up", "reopening")]
    sent_s = move.requests["dispatched_ns"][(move.requests["replica"] == 1) & (move.requests["retries"] == 0)] / 1e9
    assert not ((sent_s > 2.5) & (sent_s < 8.25)).any()
    assert (sent_s > 8.25).any()
    slowly = run(tmp_path, moving + SLOW % "migrate", room | {"engine.fast_forward": False})
    np.testing.assert_array_equal(slowly.requests, move.requests)


def test_moves_are_arrows_of_the_chrome_trace(tmp_path):
    path = tmp_path / "move.toml"
    path.write_text(f"{BASE}[cluster.rescheduling]\nleast_difference = 0.1\n{LINK}[output]\nchrome_trace = true\n")
    result = simulator.run(path, out=tmp_path / "out")
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    moves = [event for event in events if event.get("cat") == "migration"]
    assert len(moves) == 4 * result.summary["migrations"] > 20
    begins, ends = ([event for event in moves if event["ph"] == kind] for kind in "sf")
    assert all(begin["id"] == end["id"] and begin["pid"] != end["pid"] and begin["ts"] <= end["ts"]
               for begin, end in zip(begins, ends, strict=True))


@pytest.mark.parametrize(("more", "message"), [
    ("[cluster.rescheduling]\n", "cluster.rescheduling.kv_bytes_per_token: missing; expected a number, or [model]"),
    ("[cluster.rescheduling]\nkv_bytes_per_token = 1.0\n", "cluster.rescheduling.bandwidth_gb_per_s: missing"),
    ("[cluster.rescheduling]\npolicy = 'rebalanced'\n", 'no rescheduler "rebalanced"; did you mean rebalance?'),
    ("[autoscaling]\npolicy = 'utilisation'\ndrain = 'migrate'\n",
     'autoscaling.drain: expected "finish" without [cluster.rescheduling]'),
    ("[[failures]]\nkind = 'slow'\nat_s = 1.0\non_failure = 'migrate'\n",
     'failures[0].on_failure: expected "retry" or "restart" or "lost" without'),
    ("[[failures]]\nkind = 'stop'\nat_s = 1.0\non_failure = 'migrate'\n",
     'failures[0]: on_failure = "migrate" takes'),
    ("[cluster.rescheduling]\nmode = 'alive'\n", "cluster.rescheduling.mode: expected"),
])
def test_faults_are_named(tmp_path, more, message):
    with pytest.raises(InputErrors) as caught:
        run(tmp_path, more)
    assert message in str(caught.value)
