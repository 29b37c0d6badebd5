"""Cooldowns, circuit breakers and waits before retries, on timelines by hand: every iteration takes 5 ms."""
import pytest
from msgspec.structs import replace

import simulator
from simulator.domain import records
from simulator.domain.failures import Failure
from simulator.domain.guards import Breaker, Cooldown, Retry
from support import upkeep
from support.scenario import load
from support.upkeep import MS

PRICES = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
EACH = Cooldown(seconds=0.02, failed_share=0.0, min_requests=1)       # each failure cools its replica down
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def serve(requests, *, fast=True, replicas=2, failures=(), **setup):
    """Serve (arrival in ms, output tokens, deadline in ms or None) under round robin."""
    described = [{"id": str(i), "arrival": arrival / 1e3, "prompt": [["uniq", 10]], "output_len": outputs}
                 | ({} if deadline is None else {"deadline": deadline / 1e3})
                 for i, (arrival, outputs, deadline) in enumerate(requests)]
    scenario = load({"options": {}, "prices": PRICES, "requests": described})
    return upkeep.run(scenario, failures=failures, replicas=replicas, fast_forward=fast, **setup)


def stop(at_ms, which=0, **more):
    return Failure(kind="stop", which=which, at_s=at_ms / 1e3, **more)


@every_way
def test_a_replica_cools_down_after_a_client_gave_up(fast):
    # The first request is given up at 9, within 5..10: from 10 on replica 0 gets none until 30. The round goes 0, 1,
    # (0) 1, (0) 1, 0.
    requests = [(0, 9, 9), (0, 1, None), (12, 1, None), (14, 1, None), (31, 1, None)]
    outcome = serve(requests, cooldown=EACH, fast=fast)

    assert outcome.requests["replica"].tolist() == [0, 1, 1, 1, 0]
    assert outcome.changes(0) == [(10, "up", "cooldown"), (30, "up", "unbarred")]
    assert outcome.changes(1) == []


def test_a_later_failure_makes_a_cooldown_longer():
    # given up on replica 0 within 5..10 and 15..20
    outcome = serve([(0, 9, 9), (0, 1, None), (1, 9, 19), (35, 1, None), (41, 1, None)], cooldown=EACH)

    assert outcome.requests["replica"].tolist() == [0, 1, 0, 1, 0]
    assert outcome.changes(0) == [(10, "up", "cooldown"), (40, "up", "unbarred")]


def test_the_only_replica_does_not_cool_down():
    outcome = serve([(0, 9, 9), (12, 1, None)], cooldown=EACH, replicas=1)

    assert outcome.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]


def test_successes_lower_the_failed_share():
    # Each replica completes two by 5. From 6 on replica 0 loses one at 11, 16 and 21: 1 of 3 and 2 of 4 are not above
    # 0.5, 3 of 5 are; replica 1 loses two.
    requests = [*[(0, 1, None)] * 4, *[(6, 9, at) for at in (10, 10, 15, 15, 20, 90)]]
    outcome = serve(requests, cooldown=Cooldown(min_requests=3))

    assert outcome.requests["replica"].tolist() == [0, 1] * 5
    assert outcome.changes(0)[:1] == [(21, "up", "cooldown")]


def test_requests_that_lose_their_replica_cool_it_down_when_it_is_back():
    # Away from 22.5 to 32.5, barred until 42.5; the round goes 0, 1, (0) 1, 0.
    outcome = serve([(0, 9, None), (0, 1, None), (35, 1, None), (43, 1, None)], cooldown=EACH,
                    failures=[stop(22.5, duration_s=0.01)])

    assert outcome.requests["replica"].tolist() == [1, 1, 1, 0]
    assert [change[2] for change in outcome.changes(0)] == [
        "failure", "detection", "cooldown", "recovery", "reopening", "unbarred"]


@every_way
def test_a_breaker_opens_and_closes_by_trial(fast):
    # The second failure within 100 ms, at 15, opens it until 35. On trial the request of 36 completes by 41 ...
    breaker = Breaker(failures=2, window_s=0.1, open_s=0.02, successes=1)
    first = [(0, 9, 9), (0, 1, None), (0, 9, 14), (16, 1, None), (36, 1, None)]
    outcome = serve(first, breaker=breaker, fast=fast)

    assert outcome.requests["replica"].tolist() == [0, 1, 0, 1, 0]
    assert outcome.changes(0) == [(15, "up", "breaker"), (35, "up", "unbarred")]

    # ... or is given up within 41..46, which opens it again until 66 ...
    outcome = serve([*first[:4], (36, 9, 44), (37, 1, None), (50, 1, None), (67, 1, None)], breaker=breaker, fast=fast)
    assert outcome.requests["replica"].tolist() == [0, 1, 0, 1, 0, 1, 1, 0]
    assert outcome.changes(0) == [(15, "up", "breaker"), (35, "up", "unbarred"), (46, "up", "breaker"),
                                  (66, "up", "unbarred")]

    # ... and after a good trial one failure alone does not open it; within a longer one it does.
    last = [*first, (42, 1, None), (42, 9, 49), (55, 1, None)]
    outcome = serve(last, breaker=breaker, fast=fast)
    assert outcome.requests["status"].tolist()[6] == records.TIMED_OUT
    assert len(outcome.changes(0)) == 2
    outcome = serve(last, breaker=replace(breaker, successes=2), fast=fast)
    assert outcome.changes(0)[2:] == [(52, "up", "breaker")]


@every_way
def test_a_retry_waits(fast):
    # Replica 0 stops at 22.5; 10 ms later the request is sent to replica 1, within its iteration 30..35.
    outcome = serve([(0, 10, None), (0, 10, None)], failures=[stop(22.5)], fast=fast,
                    retry=Retry(backoff_s=0.01, jitter=0.0))

    assert outcome.times_ms(0) == [5, 10, 15, 20, 40, 45, 50, 55, 60, 65]
    assert outcome.journeys["downtime_ns"].tolist() == [10 * MS, 0]
    assert outcome.journeys["retries"].tolist() == [1, 0]


def test_the_next_retry_waits_longer():
    # From replica 0 at 22.5 to replica 1 at 32.5, and at 42.5 on to replica 2 at 62.5: 10 ms, then 20.
    outcome = serve([(0, 20, None)], failures=[stop(22.5), stop(42.5, which=1)], replicas=3,
                    retry=Retry(backoff_s=0.01, factor=2.0, jitter=0.0))

    assert outcome.retries == {0: [(0, 0, 22.5 * MS), (1, 32.5 * MS, 42.5 * MS)]}
    assert outcome.legs["sent_ns"].tolist() == [0, 32.5 * MS, 62.5 * MS]


def test_attempts_limit_retries():
    outcome = serve([(0, 10, None)], failures=[stop(22.5)], retry=Retry(attempts=0))

    assert outcome.requests["status"].tolist() == [records.FAILED]


def test_a_client_may_give_up_while_its_request_waits():
    outcome = serve([(0, 10, 30)], failures=[stop(22.5)], retry=Retry(backoff_s=0.02, jitter=0.0))

    assert outcome.requests["status"].tolist() == [records.TIMED_OUT]
    assert outcome.requests["output_tokens"].tolist() == [4]


def test_an_engine_with_a_full_queue_cools_down(tmp_path):
    # Of six at once replica 0 gets 0, 2 and 4: one runs or waits to run, one waits, one is refused, if it is full.
    rows = "\n".join(f"{at},10,200" for at in (*[0.0] * 6, 0.5, 0.6))
    (tmp_path / "trace.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}\n")
    (tmp_path / "full.toml").write_text("""
topology = {replicas = 2}
latency = {backend = "linear"}
workload = {type = "trace", path = "trace.csv"}
cluster = {cooldown = {seconds = 1000.0, allowed_fails = 0}}

[engine]
scheduler = "sglang"
max_running_requests = 1
max_queued_requests = 1
num_gpu_blocks = 1000
max_model_len = 500
""")
    run = simulator.run(tmp_path / "full.toml")
    causes = [records.LIFECYCLE_CAUSES[row["cause"]] for row in run.lifecycle]

    assert causes.count("cooldown") >= 1
    long = simulator.run(tmp_path / "full.toml", {"engine.max_model_len": 5, "topology.replicas": 2})
    assert long.summary["requests"]["completed"] == 0
    assert "cooldown" not in [records.LIFECYCLE_CAUSES[row["cause"]] for row in long.lifecycle]
