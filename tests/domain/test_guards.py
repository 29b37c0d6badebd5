"""Rules of cooldowns, circuit breakers and waits before retries."""
import pytest

from simulator.domain.guards import Breaker, Circuit, Cooldown, Retry

SECOND = 10**9


@pytest.mark.parametrize(("status", "successes", "failures", "replicas", "cools"), [
    (500, 4, 6, 2, True),           # 6 of 10 failed: 0.6 > 0.5, 10 >= 5
    (500, 4, 6, 1, False),          # the only one of its group
    (500, 5, 5, 2, False),          # 0.5 is not above
    (500, 1, 3, 2, False),          # 4 requests
    (429, 99, 1, 2, True),
    (429, 99, 1, 1, False),
    (503, 0, 1000, 1, True),
    (503, 1, 1000, 1, False),
    (401, 99, 1, 1, True),          # not to be retried
    (402, 99, 1, 1, False),
    (402, 99, 1, 2, True),
    (400, 0, 50, 2, False),         # the client's fault
    (408, 2, 3, 3, True)])
def test_a_failure_cools_down_by_share_or_status(status, successes, failures, replicas, cools):
    assert Cooldown().cools(status, successes, failures, replicas) is cools


@pytest.mark.parametrize(("failures", "replicas", "cools"), [(2, 2, False), (3, 2, True), (3, 1, False)])
def test_allowed_fails_stand_in_for_the_share(failures, replicas, cools):
    assert Cooldown(allowed_fails=2).cools(503, 0, failures, replicas) is cools


def test_allowed_fails_and_a_share_are_refused_together():
    with pytest.raises(ValueError, match="give either allowed_fails, or"):
        Cooldown(allowed_fails=2, min_requests=3)


def test_a_breaker_opens_after_failures_within_its_window():
    circuit = Circuit(Breaker(failures=3, window_s=10.0))

    assert [circuit.fails(time_s * SECOND) for time_s in (0, 1, 10, 10)] == [False, False, False, True]


def test_a_trial_ends_with_a_failure_or_enough_successes():
    circuit = Circuit(Breaker(failures=2, successes=2))
    assert [circuit.fails(0), circuit.fails(0), circuit.fails(0)] == [False, True, False]       # the last: in flight
    circuit.try_again()
    circuit.succeeds()
    assert circuit.fails(SECOND)

    circuit.try_again()
    circuit.succeeds()
    circuit.succeeds()
    assert [circuit.fails(2 * SECOND), circuit.fails(2 * SECOND)] == [False, True]


@pytest.mark.parametrize(("retry", "uniform", "wait_s"), [
    (0, 0.5, 0.05), (2, 0.5, 0.1125), (0, 0.0, 0.04), (0, 0.75, 0.055), (99, 0.5, 30.0)])
def test_waits_grow_up_to_their_limit(retry, uniform, wait_s):
    # 50 ms x 1.5^k, at most 30 s, changed by 20 % at most
    assert Retry().delay_ns(retry, uniform) == round(wait_s * SECOND)
