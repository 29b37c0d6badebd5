"""What holds in every run in which any replica computes prompts, or goes on with them, as Llumnix's scheduler says."""
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invariants.test_hand_over import assert_sound
from simulator.domain import records
from simulator.domain.protocols import HABITS
from simulator.engine.hand_over.plan import Pair, Port
from simulator.engine.plan import GatewayPlan
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters
from support.hand_over import TOKEN_BYTES, random_case, serve
from support.llumnix_faces import counted

DATA = Path(__file__).parents[2] / "configs" / "data"
IN_FLIGHT = ("in_flight", "in_flight_prefills", "in_flight_decodes", "in_flight_prefill_tokens",
             "in_flight_decode_tokens")


def adaptive_case(seed):
    """Return what `serve` takes for a random scenario with one scheduler for prompts and what follows them."""
    rng, (workload, case) = Random(seed), random_case(seed)
    roles = rng.choice([("prefill", "decode"), (("prefill", 2), ("decode", 2)), ("decode", "prefill", "decode"),
                        ("decode", ("prefill", 3)), ("prefill", ("decode", 4))])
    front = GatewayPlan(Llumnix, LlumnixParameters(
        scheduling_policy="slo", enable_adaptive_pd=True, tpot_slo_ms=rng.choice([1.0, 8.0, 50.0]),
        ttft_slo_ms=rng.choice([10.0, 6000.0]), status_poll_interval_s=rng.choice([0.0, 0.01, 0.05]),
        status_push_interval_s=rng.choice([0.0, 0.04]), status_steps=rng.choice([0, 1, 3]),
        enable_instance_status_local_account=rng.random() < 0.8, upstream_compat=rng.random() < 0.3,
        ttft_profiling_data_path=str(DATA / "prefills.json"), tpot_profiling_data_path=str(DATA / "decodes.json")))
    habits, pools = HABITS["nixl"], range(len(roles))
    groups = case["cache"]["layer_groups"].groups if case["cache"].get("layer_groups") else ()
    block_bytes = tuple(TOKEN_BYTES / len(groups) * group.block_size for group in groups)
    plan = case["plan"] | {
        "order": habits.order, "place": habits.place, "pushes": False, "sends_token": False, "granularity": "prompt",
        "has_first_token": not groups and rng.random() < 0.3, "decode_first": False, "reserved_tokens": -1,
        "either_leg": True, "prefill_front": front, "decode_front": front,
        "ports": (Port(rng.choice([2e5, 1e6, 1e8])),) * len(roles),
        "pairs": {(i, k): Pair(TOKEN_BYTES, block_bytes=block_bytes) for i in pools for k in pools}}
    cache = case["cache"] | {"enable_prefix_caching": True, "num_gpu_blocks": 8 * case["cache"]["num_gpu_blocks"]}
    return workload, case | {"roles": roles, "plan": plan, "cache": cache}


def assert_accounts_close(outcome):
    """Check what the scheduler knows when all is over."""
    router = outcome.cluster.gateways[0].router
    assert outcome.cluster.gateways[1].router.scheduler is router
    assert not any(router.candidates.array[name].any() for name in IN_FLIGHT)
    router.leg_counts.check()
    assert set(counted(router.leg_counts)) == {(0, 0)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_replicas_that_do_either_leg(seed):
    workload, case = adaptive_case(seed)
    fast = serve(workload, **case)
    slow = serve(workload, fast_forward=False, **case)
    named = serve(workload, tracks_identity=True, **case)

    assert_sound(fast)
    assert_accounts_close(fast)
    assert fast.requests.tobytes() == slow.requests.tobytes() == named.requests.tobytes()
    assert sorted(fast.iterations) == sorted(slow.iterations)
    assert fast.transfers.tobytes() == slow.transfers.tobytes()
    assert fast.legs.tobytes() == slow.legs.tobytes()
    assert fast.token_ms == slow.token_ms


def test_some_requests_stay_and_some_move():
    # else the property above would be about nothing
    stayed = moved = crossed = 0
    for seed in range(40):
        workload, case = adaptive_case(seed)
        outcome = serve(workload, **case)
        table, roles = outcome.transfers, [
            role for role, count in (each if isinstance(each, tuple) else (each, 1) for each in case["roles"])
            for _ in range(count)]
        stays = (table["is_local"] != 0) & (outcome.requests["status"] == records.COMPLETED)
        stayed += stays.sum()
        assert not table["num_bytes"][stays].any()
        assert (outcome.requests["replica"][stays] == table["prefill_replica"][stays]).all()
        moved += outcome.hand_over.moved
        crossed += sum(roles[replica] == "decode" for replica in table["prefill_replica"] if replica >= 0)

    assert stayed > 20 and moved > 20 and crossed > 20


class Counting:
    """Compares, whenever a replica acts, the prefill legs that the scheduler knows of with those that are there."""

    def __init__(self):
        self.cluster, self.most = None, 0

    def scheduled(self, _):
        found = counted(self.cluster.gateways[0].router.leg_counts)
        fleet = self.cluster.fleet
        prompts = fleet.workload.requests["prompt_tokens"]
        for replica, (count, tokens) in zip(self.cluster.replicas, found, strict=True):
            rows = [row for row in [*replica.scheduler.running_rows(), *replica.scheduler.waiting.rows()]
                    if row >= fleet.num_clients]
            assert (count, tokens) == (len(rows), prompts[rows].sum())
            self.most = max(self.most, count)

    ended = reported = scheduled


@pytest.mark.parametrize("seed", range(40))
def test_prefill_legs_are_known_at_each_step(seed):
    workload, case = adaptive_case(seed)
    watch = Counting()

    serve(workload, observer=watch, **case)

    assert watch.most > 0
