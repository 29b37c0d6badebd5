"""Policies side by side: equal requests, differences case by case."""
import math

import pytest

from gym.deployments import FLEET, POOLS, TENANTS, written
from simulator.errors import InputErrors
from simulator.gym import Rewards, Search, built_in, compare, linear_router, tune_weights


def test_a_weighted_router_has_the_weights_of_the_policy(tmp_path):
    weights = {"queue-depth": 2, "prefix-affinity": 0, "active-requests": 0.5}

    found = linear_router(weights, {"queue-depth": {"load": "effective"}})

    assert found["cluster.routing.scorers"] == [{"name": "queue-depth", "weight": 2.0, "load": "effective"},
                                                {"name": "active-requests", "weight": 0.5}]
    path = written(tmp_path, FLEET)
    alone = compare(path, {"linear": linear_router({"active-requests": 1.0}),
                           "lor": built_in("router", ["lor"])["lor"]}, [1])
    assert alone.scores["linear"] == alone.scores["lor"]       # both: fewest in flight, the lowest number of equals


@pytest.mark.parametrize(("weights", "fault"), [
    ({"queue-depth": -1.0}, r"weights\.queue-depth: expected 0 or more, found -1"),
    ({"queue-depth": math.nan}, r"weights\.queue-depth: expected 0 or more"),
    ({"queue-depth": 0.0}, "weights: expected one above 0"),
])
def test_weights_that_say_nothing_are_refused(weights, fault):
    with pytest.raises(InputErrors, match=fault):
        linear_router(weights)


def test_differences_are_those_of_equal_seeds(tmp_path):
    names = ["random", "least_loaded", "split_wise"]

    found = compare(written(tmp_path, FLEET), built_in("router", names), [1, 2, 3])

    assert "another without pools" in found.refused["split_wise"]
    gaps = [mine.reward - first.reward for mine, first in zip(found.scores["least_loaded"], found.scores["random"])]
    assert found.difference("least_loaded").mean == pytest.approx(sum(gaps) / 3)
    assert found.difference("random") == (0.0, 0.0)
    head, *rows = str(found).splitlines()
    assert head.split() == ["policy", "reward", "-", "first", "+/-", "good", "cost", "fairness", "TTFT", "p99", "ms"]
    assert [row.split()[0] for row in rows[:2]] == ["least_loaded", "random"]
    assert rows[2].startswith("split_wise: refused: ")


def test_autoscalers_are_compared_by_their_cost(tmp_path):
    policies = {"none": {"autoscaling.policy": "schedule", "autoscaling.changes": [{"at_s": 99, "replicas": 1}]},
                **built_in("scaling", ["queue"])}

    found = compare(written(tmp_path, POOLS), policies, [4], kind="scaling", rewards=Rewards(goodput=0.0, cost=1.0))

    assert found.scores["none"][0].reward == -found.scores["none"][0].gains.cost < 0


def test_a_case_may_be_another_trace(tmp_path):
    path = written(tmp_path, TENANTS)
    (tmp_path / "held_out.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,2\n")

    found = compare(path, built_in("router", ["random"]), [{"workload.path": str(tmp_path / "held_out.csv")}])

    assert found.scores["random"][0].gains.good == 1


def test_nothing_to_compare_is_refused(tmp_path):
    with pytest.raises(InputErrors, match="at least one policy, and one case"):
        compare(written(tmp_path, FLEET), built_in("router", ["random"]), [])


def test_weights_are_searched_until_no_trial_is_better(tmp_path):
    pytest.importorskip("optuna", reason="the search needs the extra `tune`")
    path, names = written(tmp_path, FLEET), ("active-requests", "kv-utilization")

    found = tune_weights(path, names, [1], search=Search(trials=6, patience=2))

    assert found == tune_weights(path, names, [1], search=Search(trials=6, patience=2))
    rewards = [reward for _, reward in found.trials]
    assert found.trials[0][0] == dict.fromkeys(names, 1.0)
    assert found.reward == max(rewards)
    assert len(rewards) == min(rewards.index(max(rewards)) + 3, 6)


def test_a_search_without_scorers_is_refused(tmp_path):
    with pytest.raises(InputErrors, match="at least one scorer"):
        tune_weights(written(tmp_path, FLEET), [], [1])
