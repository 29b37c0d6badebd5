"""[cluster.rescheduling] in experiment files."""
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
    assert np.isin(requests["status"], [records.COMPLETED, records.DROPPED, records.REJECTED]).all()
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


@pytest.mark.parametrize(("more", "message"), [
    ("[cluster.rescheduling]\n", "cluster.rescheduling.kv_bytes_per_token: missing; expected a number, or [model]"),
    ("[cluster.rescheduling]\nkv_bytes_per_token = 1.0\n", "cluster.rescheduling.bandwidth_gb_per_s: missing"),
    ("[cluster.rescheduling]\npolicy = 'rebalanced'\n", 'no rescheduler "rebalanced"; did you mean rebalance?'),
    ("[autoscaling]\npolicy = 'utilisation'\ndrain = 'migrate'\n", 'autoscaling.drain: "migrate" needs'),
    ("[cluster.rescheduling]\nmode = 'alive'\n", "cluster.rescheduling.mode: expected"),
])
def test_faults_are_named(tmp_path, more, message):
    with pytest.raises(InputErrors) as caught:
        run(tmp_path, more)
    assert message in str(caught.value)
