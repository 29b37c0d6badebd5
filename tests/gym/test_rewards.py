"""Rewards are differences of totals, and the totals of an episode are those of the summary."""
from itertools import pairwise

import pytest

from gym.deployments import FLEET, POOLS, TENANTS, steps_of, written
from simulator.gym.episode import ROUTER, SCALING, Episode, asked
from simulator.gym.rewards import Gains, Rewards


def totals_of(episode, act):
    """Play an episode; return its totals at each decision, and at the end."""
    found = []
    steps_of(episode, lambda number, decision: (found.append(episode.gains), act(number, decision))[1])
    return [*found, episode.gains]


def test_good_requests_are_those_of_the_summary(tmp_path):
    episode = Episode(asked(ROUTER, written(tmp_path, FLEET)))
    totals = totals_of(episode, lambda *_: 0)

    assert 0 < totals[-1].good < 60
    assert totals[-1].good == round(60 * episode.result.summary["slo_attainment"])
    requests = episode.result.requests
    ends_ns = requests["completed_ns"][requests["completed_ns"] - requests["arrival_ns"] <= 150_000_000]
    ended_by = [int((ends_ns <= time_ns).sum()) for time_ns in requests["arrival_ns"]]
    assert [each.good for each in totals[:-1]] == ended_by


def test_the_cost_grows_with_the_replicas_and_ends_at_the_bill(tmp_path):
    episode = Episode(asked(SCALING, written(tmp_path, POOLS)))
    totals = totals_of(episode, lambda number, _: (3, 4) if number == 1 else (1, 2))

    assert totals[0].cost == pytest.approx((2 + 2 * 3) * 0.25 / 3600)       # 0.25 s of one replica, and of two
    assert totals[2].cost - totals[1].cost == pytest.approx((2 + 2 * 3) * 0.25 / 3600)
    assert totals[3].cost - totals[2].cost == pytest.approx((3 * 2 + 4 * 3) * 0.25 / 3600)
    assert totals[-1].cost == episode.result.summary["cost"]["total"]


def test_fairness_is_the_index_of_the_summary(tmp_path):
    episode = Episode(asked(ROUTER, written(tmp_path, TENANTS)))
    totals = totals_of(episode, lambda number, _: number % 3)

    first = next(each.fairness for each in totals if each.fairness < 1)
    assert first == 0.5                        # of two tenants one has had tokens
    assert 0.5 < totals[-1].fairness == episode.result.summary["fairness"] < 1


def test_a_reward_is_the_weighted_sum_of_differences():
    before, after = Gains(good=3, cost=1.0, fairness=0.5), Gains(good=5, cost=1.5, fairness=0.75)

    assert after.reward_since(before, Rewards(goodput=2.0, cost=4.0, fairness=8.0)) == 2 * 2 - 4 * 0.5 + 8 * 0.25


def test_rewards_from_the_begin_add_up_to_the_total(tmp_path):
    weights = Rewards(goodput=1.0, cost=30.0, fairness=5.0)
    totals = [Gains(), *totals_of(Episode(asked(ROUTER, written(tmp_path, TENANTS))), lambda number, _: number % 2)]

    rewards = [later.reward_since(earlier, weights) for earlier, later in pairwise(totals)]
    last = totals[-1]
    assert sum(rewards) == pytest.approx(last.good - 30 * last.cost - 5 * (1 - last.fairness))
