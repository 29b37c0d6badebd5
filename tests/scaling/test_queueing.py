"""llm-d's queueing model: times, rates, its limits, and the filter that learns its parameters."""
import numpy as np
import pytest

from scaling.test_policies import observed, variant
from simulator.domain import records
from simulator.scaling.base import Observation
from simulator.scaling.queueing import Filter, Queue, Queueing, QueueingParameters

QUEUE = Queue(5.0, 0.05, 0.0001, 500.0, 99.0, 8)


def test_times_follow_the_formulas():
    # n (0.05 x 599 / 100 + 0.0001 x 549.5) = n x 0.35445.
    assert QUEUE.iteration_ms(2) == pytest.approx(5.7089)
    assert QUEUE.prefill_ms(2) == pytest.approx(5.7089 + 0.0501 * 500)
    assert QUEUE.decode_ms(2) == pytest.approx(5.7089 + 0.05 + 0.05495)
    assert QUEUE.service_rate(2) == pytest.approx(2 / (30.7589 + 99 * 5.81385))


def test_one_place_is_an_m_m_1_queue():
    # At half of its rate mu: 1 waits in the mean at 1 / (mu - lambda) - 1 / mu = 1 / mu, with a room of 11 nearly.
    queue = QUEUE._replace(places=1)
    mean_ms = 1 / queue.service_rate(1)
    ttft_ms, itl_ms = queue.latencies_ms(0.5 / mean_ms)

    shares = 0.5 ** np.arange(12) / (0.5 ** np.arange(12)).sum()
    waiting, served = (shares * np.maximum(np.arange(12) - 1, 0)).sum(), 1 - shares[0]
    assert itl_ms == pytest.approx(queue.decode_ms(served))
    assert ttft_ms == pytest.approx(waiting / (0.5 / mean_ms * (1 - shares[-1])) + queue.prefill_ms(served) + itl_ms)


def test_the_largest_rate_is_where_a_bound_is_met():
    rate = QUEUE.largest_rate(1e9, 6.5)
    assert QUEUE.latencies_ms(rate)[1] == pytest.approx(6.5)
    rate = QUEUE.largest_rate(60.0, 1e9)
    assert QUEUE.latencies_ms(rate)[0] == pytest.approx(60.0)
    assert QUEUE.largest_rate(1e9, 1e9) == pytest.approx(0.999 * QUEUE.service_rate(8))
    assert QUEUE.largest_rate(1.0, 1.0) == pytest.approx(0.001 * QUEUE.service_rate(1))


def test_the_filter_learns_what_it_observes():
    rate, truth = 0.004, QUEUE._replace(alpha=6.0, beta=0.06)
    learned = Filter(5.0, 0.05, 0.0001)

    assert all(learned.update(500.0, 99.0, 8, rate, truth.latencies_ms(rate)) for _ in range(20))
    assert QUEUE._replace(**dict(zip(("alpha", "beta", "gamma"), learned.state, strict=True))).latencies_ms(
        rate) == pytest.approx(truth.latencies_ms(rate), rel=0.01)


def test_an_observation_that_does_not_fit_is_undone():
    learned = Filter(5.0, 0.05, 0.0001)
    assert not learned.update(500.0, 99.0, 8, 0.004, (9e4, 1.0))
    assert learned.state.tolist() == [5.0, 0.05, 0.0001]


def done(count, ttft_ms=35.0, itl_ms=6.0):
    rows = np.zeros(count, records.REQUEST)
    rows["status"], rows["prompt_tokens"], rows["output_tokens"] = records.COMPLETED, 500, 99
    rows["first_token_ns"] = round(ttft_ms * 1e6)
    rows["completed_ns"] = rows["first_token_ns"] + round(itl_ms * 98 * 1e6)
    return rows


def decided(policy, count, now_s=10, *, serving=1, **keys):
    seen = observed(variant(0, (0,) * serving, **keys), finished=done(count))
    return policy.decide(Observation(now_s * 10**9, seen.variants, seen.queued, seen.finished))


def test_replicas_are_the_rate_over_the_largest_one():
    # Tokens within 6.5 ms: iterations of 6.395 ms, so that 3.936 requests run.
    policy = Queueing(QueueingParameters(alpha=5.0, beta=0.05, gamma=0.0001, learn=False, itl_ms=6.5))
    largest = QUEUE._replace(places=10).largest_rate(500.0, 6.5) * 1e3
    count = int(largest * 10 * 2.5)         # of 10 s: two and a half replicas

    assert decided(policy, count) == {0: 2}
    assert decided(policy, count, 20, serving=3) == {}
    assert decided(policy, 1, 30, serving=3) == {0: -2}
    assert decided(policy, 0, 40, serving=3, waiting=2, in_flight=2) == {}
    assert decided(policy, 0, 50, serving=0) == {}


def test_learned_parameters_follow_the_latencies():
    # 5 a second: 3.25 run, and tokens take 6.26 ms by the first parameters; 6 ms are observed.
    keys = {"alpha": 5.0, "beta": 0.05, "gamma": 0.0001, "itl_ms": 6.5}
    fixed, learning = (Queueing(QueueingParameters(**keys, learn=learn)) for learn in (False, True))
    for now_s in range(10, 60, 10):
        decided(fixed, 50, now_s)
        decided(learning, 50, now_s)

    assert learning.filter.state[0] < 5.0 == fixed.filter.state[0]
