"""What holds when replicas fail at any instant of a hand-over."""
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.domain.failures import Failure, Health
from simulator.scaling.queue import Queue, QueueParameters
from support.hand_over import FRONT, MS, moments_of, random_case, serve, upkeep
from support.upkeep import failure_of
from support.workloads import plain_workload

CAUSES = {records.CAUSE_NAMES.index(name) for name in ("lost", "kv_load_failed", "no_replica")}
REFUSED = (records.DROPPED, records.REJECTED, records.FAILED)


def assert_accounts_close(outcome, ends_early=False):
    """Check that nobody is lost and that every block and every transfer is accounted for.

    ends_early : the run ends with the last request; blocks may still be held then, and prefill legs of those who gave
        up still be on replicas.
    """
    requests, journeys, hand_over = outcome.requests, outcome.run.journeys, outcome.hand_over
    hand_over.check()
    if not ends_early:
        assert hand_over.started == hand_over.completed + hand_over.failed + hand_over.cancelled
        assert hand_over.leases.on() == []
    status = requests["status"]
    assert (status >= records.COMPLETED).all()
    for row in np.flatnonzero(np.isin(status, REFUSED) & (journeys["retries"] > 0)):
        assert journeys["cause"][row] in CAUSES
    for replica in outcome.cluster.replicas:        # free + owned + held + loading = usable, and all are free
        replica.check()
        assert ends_early or replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
        assert ends_early or replica.scheduler.loading == replica.scheduler.loading_tokens == 0
        scheduler = replica.scheduler
        assert ends_early or not scheduler.running_rows() + scheduler.held_rows() + scheduler.waiting.rows()
    for gateway in outcome.cluster.gateways:
        assert ends_early or not gateway.view.account_array["in_flight"].any()
        assert ends_early or not gateway.view.account_array["in_flight_tokens"].any()
    done = requests[status == records.COMPLETED]
    assert (done["completed_ns"] >= done["first_token_ns"]).all()
    assert (done["first_token_ns"] > done["scheduled_ns"]).all()
    assert (done["scheduled_ns"] >= done["enqueued_ns"]).all()
    assert ends_early or (outcome.legs["how"] != records.LEG_ENDS.index("underway")).all()
    counted = len(outcome.legs[(outcome.legs["how"] == records.LEG_ENDS.index("retried"))])
    assert journeys["retries"].sum() == counted
    for row, times in outcome.token_ms.items():
        assert times == sorted(times)
        assert len(times) >= requests["output_tokens"][row]


def shown(iterations):
    """Return the rows, in any order."""
    return sorted(iterations)


def assert_same(one, other):
    for table in ("requests", "transfers", "legs"):
        np.testing.assert_array_equal(getattr(one, table), getattr(other, table))
    np.testing.assert_array_equal(one.run.journeys, other.run.journeys)
    assert shown(one.iterations) == shown(other.iterations)
    assert one.token_ms == other.token_ms


PATIENT = replace(FRONT, retry_ns=50 * MS, patience_ns=10**10)
SMALL = {"cache": {"num_gpu_blocks": 12, "block_size": 16, "max_model_len": 4096}, "keeps_legs": True}
PLAN = {"lease_ns": 300 * MS, "heartbeat_ns": 50 * MS, "extension_ns": 200 * MS, "handshake_ns": 7 * MS,
        "hop_ns": 2 * MS, "notice_ns": MS, "base_ns": 3 * MS, "prefill_front": PATIENT, "decode_front": PATIENT}


def small():
    """Return the requests of a small run: three prompts, the last of which waits for those before it."""
    return plain_workload([0, 3 * MS, 20 * MS], [40, 70, 33], [5, 4, 6])


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fail", "recompute"])
@pytest.mark.parametrize("kind", ["stop", "link"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_failure_at_each_event_of_a_run(which, kind, policy):
    plan = PLAN | {"recomputes": policy == "recompute"}
    moments = moments_of(serve(small(), plan=plan, **SMALL))
    ends = set()
    for moment_ns in sorted({moment + shift for moment in moments for shift in (-1, 0, 1) if moment + shift >= 0}):
        failure = Failure(kind=kind, which=which, at_s=moment_ns / 1e9, duration_s=0.04)
        for detection_s in (0.0, 0.01, 1.0):
            case = SMALL | {"operations": upkeep([failure], health=Health(detection_delay_s=detection_s)), "plan": plan}
            outcome = serve(small(), **case)
            assert_accounts_close(outcome)
            assert_same(outcome, serve(small(), fast_forward=False, **case))
            ends |= set(outcome.requests["status"].tolist())
    assert len(moments) > 20
    is_read_in_vain = policy == "fail" and (which, kind) != (1, "stop")     # who reads has not stopped itself
    assert ends == ({records.COMPLETED, records.DROPPED} if is_read_in_vain else {records.COMPLETED})


def failing_case(seed):
    """Return what `serve` takes for a random scenario in which prompts are computed apart and replicas fail."""
    rng = Random(seed)
    workload, case = random_case(seed)
    for name in ("order", "place", "pushes", "sends_token", "granularity", "reserved_tokens",   # as nixl has it
                 "unawaited"):
        case["plan"].pop(name, None)
    case["plan"] |= {"lease_ns": rng.choice([20 * MS, 30_000 * MS]), "recomputes": rng.random() < 0.5,
                     "heartbeat_ns": rng.choice([0, 3 * MS]), "extension_ns": rng.choice([13 * MS, 20_000 * MS])}
    failures = []
    for _ in range(rng.randint(1, 3)):
        failure = {"kind": rng.choice(["stop", "stop", "link", "slow"]), "max_retries": rng.choice([0, 1, 100]),
                   "on_failure": rng.choice(["retry", "retry", "restart", "lost"]),
                   "which": rng.choice(["any", "each", 0])}
        if rng.random() < 0.5:
            failure["at_s"] = rng.choice([0.0, 0.0513, 0.2])
        else:
            failure["mtbf_s"] = rng.choice([0.1, 0.5])
        if rng.random() < 0.9:
            failure["duration_s"] = rng.choice([0.001, 0.02, 0.1])
        failures.append(failure_of(**failure))
    health = Health(check_interval_s=rng.choice([0.0, 0.01]), reopening_delay_s=rng.choice([0.0, 0.02]),
                    detection_delay_s=rng.choice([0.0, 0.004, 0.05]))
    return workload, case | {"operations": upkeep(failures, health=health), "keeps_legs": True, "seed": seed}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_whatever_fails_when_the_accounts_close(seed):
    workload, case = failing_case(seed)
    outcome = serve(workload, **case)

    (failures,) = (make.keywords["failures"] for make in case["operations"])
    last_s = max(9e9 if failure.at_s is None else failure.at_s for failure in failures)
    assert_accounts_close(outcome, ends_early=last_s * 1e9 >= outcome.run.clock_ns)
    assert_same(outcome, serve(workload, fast_forward=False, **case))
    assert_same(outcome, serve(workload, **case))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_whoever_comes_and_goes_meanwhile_the_accounts_close(seed):
    workload, case = failing_case(seed)
    (operations,) = case["operations"]
    scaling = Autoscaling(policy="queue", interval_s=0.03, parameters=QueueParameters(target_waiting=1.0), **{
        name: Delay() for name in ("actuation_delay", "provisioning_delay", "loading_delay", "warm_up_delay")})
    failures = operations.keywords["failures"] if seed % 2 else ()
    case["operations"] = upkeep(failures, health=operations.keywords["health"], autoscaling=scaling, autoscaler=Queue)
    case["cache"] |= {"max_replicas": 4}
    outcome = serve(workload, **case)

    assert_accounts_close(outcome, ends_early=True)
    assert_same(outcome, serve(workload, fast_forward=False, **case))
    np.testing.assert_array_equal(outcome.run.lifecycle, serve(workload, **case).run.lifecycle)


class Watch:
    """Observer that checks the books whenever a batch is formed or ends."""

    def __init__(self):
        self.cluster, self.most_held = None, 0

    def scheduled(self, replica):
        (hand_over,) = (each for each in self.cluster.operations if each.continues)
        hand_over.check()
        self.most_held = max(self.most_held, len(hand_over.leases.on()))
        seen = set()
        for each in self.cluster.replicas:
            scheduler = each.scheduler
            rows = scheduler.running_rows() + scheduler.held_rows() + scheduler.waiting.rows()
            assert not seen & set(rows)     # a leg is in one place
            seen |= set(rows)

    def ended(self, replica):
        replica.check()                     # free + owned, held and loading ones among them = usable

    def reported(self, replica):
        """Have nothing to say: its batch is told of by the others."""


def test_the_books_agree_at_every_moment():
    watches = [Watch() for _ in range(40)]
    for seed, watch in enumerate(watches):
        workload, case = failing_case(seed)
        serve(workload, observer=watch, **case)

    assert max(watch.most_held for watch in watches) > 2


def test_the_cases_are_worth_running():
    outcomes = [serve(failing_case(seed)[0], **failing_case(seed)[1]) for seed in range(80)]
    for name, least in (("failed", 20), ("cancelled", 5), ("expired", 20), ("completed", 200)):
        assert sum(getattr(outcome.hand_over, name) for outcome in outcomes) > least
    assert sum(int(outcome.run.journeys["retries"].sum()) for outcome in outcomes) > 30


# One replica for prompts and one for answers; an iteration takes 10 ms. A prompt of 64 tokens moves for 64 ms.
ONE = {"cache": {"num_gpu_blocks": 100, "block_size": 16}, "keeps_legs": True}


def fails(kind, which, at_ms, **more):
    failure = Failure(kind=kind, which=which, at_s=at_ms / 1e3, duration_s=1.0)
    return ONE | {"operations": upkeep([failure]), "plan": more}


def test_blocks_are_held_to_the_end_of_the_lease_where_the_decode_replica_died():
    # Prefill to 10 ms; the decode replica stops at 30 while it reads, and there is no other until 1,030. Heartbeats at
    # 10, 15, ... 30: the lease of 100 ms runs out at 110, since it was extended to 30 + 60 = 90 only.
    case = fails("stop", 1, 30, lease_ns=100 * MS, heartbeat_ns=5 * MS, extension_ns=60 * MS)
    for extension_ns, end_ms in ((60 * MS, 110), (90 * MS, 120)):
        case["plan"]["extension_ns"] = extension_ns
        outcome = serve(plain_workload(0, 64, 3), horizon_ns=(end_ms - 1) * MS, **case)
        held = outcome.cluster.replicas[0].scheduler.kv
        assert (held.num_blocks - held.free_blocks, outcome.hand_over.leases.holds(0)) == (4, 1)
        outcome = serve(plain_workload(0, 64, 3), horizon_ns=(end_ms + 1) * MS, **case)
        held = outcome.cluster.replicas[0].scheduler.kv
        assert (held.num_blocks - held.free_blocks, outcome.hand_over.expired) == (0, 1)


@pytest.mark.parametrize(("recomputes", "status", "first_ms"), [
    (True, records.COMPLETED, 40.0), (False, records.DROPPED, -1e-6)])
@pytest.mark.parametrize("kind", ["stop", "link"])
def test_a_read_from_a_replica_that_dies_fails_then(kind, recomputes, status, first_ms):
    # At 30 ms, while nothing runs on the decode replica: it computes the prompt in 10.
    outcome = serve(plain_workload(0, 64, 3), **fails(kind, 0, 30, recomputes=recomputes))

    assert (outcome.requests["status"][0], outcome.ms("first_token_ns")[0]) == (status, first_ms)
    assert (outcome.hand_over.started, outcome.hand_over.failed) == (1, 1)


def test_a_prompt_whose_replica_dies_is_computed_by_another():
    # The first of two dies at 5 ms, which is known at once. The other one needs 10, its KV 64, the first token 10.
    case = fails("stop", 0, 5)
    outcome = serve(plain_workload(0, 64, 3), [("prefill", 2), "decode"], **case)

    assert outcome.transfers["prefill_replica"].tolist() == [1]
    assert outcome.ms("first_token_ns") == [5 + 10 + 64 + 10]
    assert outcome.run.journeys["retries"].tolist() == [1]
    ends = [records.LEG_ENDS[how] for how in outcome.legs["how"]]
    assert (ends, outcome.legs["role"].tolist()) == (["retried", "handed_over", "completed"], [1, 1, 2])


def test_a_request_whose_decode_replica_dies_is_sent_again_from_its_prompt_on():
    # It dies at 100 ms with one token out, at 84, and the second under way. The prompt is computed again, to 110, moved
    # to 174, and the last token of the prompt computed with the one that was out: the second comes at 184.
    outcome = serve(plain_workload(0, 64, 3), ["prefill", ("decode", 2)], **fails("stop", 1, 90))

    assert outcome.token_ms[0] == [84, 174, 184]
    assert outcome.requests["replica"].tolist() == [2]
    assert outcome.ms("prefill_done_ns", "transfers") == [100]


def test_a_replica_without_its_link_renews_no_lease_and_does_so_again():
    # The decode replica is full beyond 300 ms. The lease of the second request runs from 110 on, with heartbeats at
    # 110, 115, ... 200. There the link is lost: it runs out at 220, or is renewed before that.
    workload = plain_workload([0, 100 * MS], [16, 64], [30, 3])
    for duration_ms, expired in ((15, 0), (35, 1)):
        failure = Failure(kind="link", which=1, at_s=0.2, duration_s=duration_ms / 1e3)
        case = {"cache": {"num_gpu_blocks": 6, "block_size": 16}, "keeps_legs": True, "plan": {
            "lease_ns": 40 * MS, "heartbeat_ns": 5 * MS, "extension_ns": 20 * MS},
            "operations": upkeep([failure], health=Health(detection_delay_s=9.0))}
        assert serve(workload, **case).hand_over.expired == expired
