"""Prefill and decode replicas that come and go: timelines by hand, in ms.

An iteration takes 10, whatever is in it; a token of KV moves in 1.
"""
import pytest

import simulator
from simulator.domain import records
from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.scaling.base import Autoscaler
from support.hand_over import MS, serve, upkeep
from support.workloads import plain_workload

CACHE = {"num_gpu_blocks": 100, "block_size": 16}


def run(script, arrivals, prompts, outputs, roles=("prefill", "decode"), together=False, seen=None, **more):
    """Serve requests; at 20, 40, ... pools change as the script says, [{pool: change}]."""
    class Scripted(Autoscaler):
        needs_roles = together
        wants_finished = True

        def __init__(self, parameters):
            self.script = list(script)

        def decide(self, observation):
            if seen is not None:
                seen.append(observation)
            change = self.script.pop(0) if self.script else {}
            pools = [variant.index for variant in observation.variants]
            return {pool: count for pool, count in change.items() if pool in pools}

    nothing = dict.fromkeys(("actuation_delay", "provisioning_delay", "loading_delay", "warm_up_delay"), Delay())
    scaling = Autoscaling(policy="scripted", interval_s=0.02, parameters=None, **nothing)
    return serve(plain_workload([each * MS for each in arrivals], prompts, outputs), roles, keeps_legs=True,
                 cache=CACHE | {"max_replicas": 3}, operations=upkeep(autoscaling=scaling, autoscaler=Scripted),
                 plan={"contention": "none"} | more)


def changes(outcome, replica):
    return [(row["time_ns"] / MS, records.STAGE_NAMES[row["state"]]) for row in outcome.run.lifecycle
            if row["replica"] == replica and row["cause"] > 0]


def test_a_prefill_replica_that_is_to_go_stays_until_its_blocks_have_been_read():
    # The second request's prompt is computed on the second replica from 1 to 11, and read to 75.
    outcome = run([{0: -1}], [0, 1], [64, 64], [3, 3], [("prefill", 2), "decode"])

    assert changes(outcome, 1) == [(20, "draining"), (75, "off")]
    assert outcome.transfers["prefill_replica"].tolist() == [0, 1]
    assert outcome.ms("end_ns", "transfers") == [74, 75]
    assert outcome.requests["status"].tolist() == [records.COMPLETED] * 2


def test_it_stays_until_the_lease_runs_out_where_nobody_reads_them():
    # On the way to the router for 100; the lease of 50 runs out at 61.
    outcome = run([{0: -1}], [0, 1], [64, 64], [3, 3], [("prefill", 2), "decode"], hop_ns=100 * MS, lease_ns=50 * MS,
                  recomputes=True)

    assert changes(outcome, 1) == [(20, "draining"), (61, "off")]
    assert outcome.hand_over.expired == 2


def test_a_decode_replica_that_is_to_go_reads_what_is_its_own():
    # Chosen for the second request, it is to go at 20, while it reads to 74: the last of three tokens comes at 104. One
    # that comes at 30 goes to the other.
    outcome = run([{1: -1}], [0, 0, 30], [64, 64, 16], [3, 3, 2], ["prefill", ("decode", 2)])

    assert outcome.requests["replica"].tolist() == [3, 4, 3]        # places 0, 1 and 2 are for prompts
    assert changes(outcome, 4) == [(20, "draining"), (104, "off")]
    assert (outcome.requests["status"] == records.COMPLETED).all()


def test_a_decode_replica_chosen_before_it_was_to_go_is_chosen_again():
    # The prompt of the second request is computed to 25; the replica that was to take it is on its way out since 20.
    outcome = run([{1: -1}], [0, 15], [64, 16], [3, 2], ["prefill", ("decode", 2)], decode_first=True)

    assert outcome.transfers["decode_place"].tolist() == [0, 1]
    assert outcome.requests["replica"].tolist() == [3, 3]
    assert outcome.ms("prefill_done_ns", "transfers") == [10, 25]


@pytest.mark.parametrize(("together", "pools"), [(False, [[0], [1]]), (True, [[0, 1]])])
def test_a_policy_sees_either_side_or_both(together, pools):
    seen = []
    outcome = run([], [0, 90], [64, 64], [3, 3], together=together, seen=seen)

    assert [[variant.index for variant in each.variants] for each in seen[:len(pools)]] == pools
    roles = {variant.index: variant.role for each in seen for variant in each.variants}
    assert roles == {0: "prefill", 1: "decode"}
    heard = [sum(len(each.finished) for each in seen[i::len(pools)]) for i in range(len(pools))]
    assert heard == [1] * len(pools)                    # of the two, up to its last decision
    assert (outcome.requests["status"] == records.COMPLETED).all()


def test_new_replicas_take_their_part():
    # One more for prompts and one more for what follows, at 20.
    outcome = run([{0: 1, 1: 1}], [0, 25, 26, 27], [16] * 4, [2] * 4)

    assert sorted(set(outcome.transfers["prefill_replica"].tolist())) == [0, 1]
    assert len(set(outcome.requests["replica"].tolist())) == 2


BEGINS_ANEW = """
engine = {max_model_len = 200, num_gpu_blocks = 60, block_size = 4}
latency = {backend = "linear", base_us = 10000.0}
pools = [{name = "p", role = "prefill", replicas = 2}, {name = "d", role = "decode"}]
kv_transfer = {kv_bytes_per_token = 1e6, bandwidth_gb_per_s = 1.0}
workload = {type = "trace", path = "t.csv", time_origin = "trace"}
topology = {}
[autoscaling]
policy = "schedule"
max_replicas = 2
changes = [{at_s = 0.02, remove = 1}, {at_s = 0.2, pool = "p", replicas = 2}]
"""


def test_a_prefill_replica_that_begins_anew_without_a_delay_finds_no_blocks_of_before(tmp_path):
    # b's 40 tokens are computed on the second replica up to 10, and read while it drains; it is back at 200.
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
                                    "0,40,3,a:40\n0,40,3,b:40\n0.3,40,3,c:40\n0.31,40,3,b:40\n")
    (tmp_path / "a.toml").write_text(BEGINS_ANEW)

    result = simulator.run(tmp_path / "a.toml")

    prefills = result.legs[result.legs["role"] == 1]
    assert prefills["replica"].tolist() == [0, 1, 0, 1]
    assert prefills["cached_tokens"].tolist() == [0, 0, 0, 0]
    assert [row["time_ns"] / MS for row in result.lifecycle if row["replica"] == 1 and row["cause"] > 0][2] == 200
