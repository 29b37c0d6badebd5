"""Windows and rates of autoscaling, by Kubernetes' rules: worked numbers."""
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.test_policies import observed, variant
from simulator.domain.autoscaling import Autoscaling, Delay, Rate, Rates
from simulator.engine.operations.pace import Limits, Lowest, Pace, cut, keeping_one
from simulator.scaling.base import Autoscaler, Observation
from simulator.scaling.hpa import Hpa

S = 10**9


def pace(policy=Autoscaler, **keys):
    delays = dict.fromkeys(("actuation_delay", "provisioning_delay", "loading_delay", "warm_up_delay"), Delay())
    return Pace(Autoscaling(policy="x", parameters=None, **delays, **keys), policy)


def at(now_s, replicas, removable=99):
    pool = variant(0, (0,) * replicas, room=99)
    seen = observed(pool)
    return Observation(round(now_s * S), seen.variants, 0, seen.finished)


def follow(limits, recommendations, replicas=10, step_s=15):
    """Return the number of replicas after each of the recommendations, which come every 15 s from 0 on."""
    found = []
    for i, wanted in enumerate(recommendations):
        change = wanted - replicas
        due = limits.due(at(step_s * i, replicas), {0: change} if change else {})
        limits.acted(due)
        replicas += due.get(0, 0)
        found.append(replicas)
    return found


def test_down_to_the_highest_of_the_window():
    # 4 at 0, 15, ... s, but 9 at 150 s. At 300 s the 10 at the begin no longer counts: 9; at 450 s the 9 neither: 4.
    recommendations = [4] * 10 + [9] + [4] * 25
    found = follow(pace(Hpa), recommendations)
    assert found[:20] == [10] * 20
    assert found[20:30] == [9] * 10
    assert found[30:] == [4] * 6


def test_unbroken_windows_go_to_the_last():
    unbroken = pace(Hpa, stabilization="unbroken")
    assert follow(unbroken, [4] * 10 + [9] + [4] * 25)[18:22] == [10, 10, 4, 4]


def test_up_to_the_lowest_of_the_window():
    # The window of 30 s holds the recommendation of 15 s ago. 20 wanted at 30 s, granted at 45 s; down at once.
    limits = pace(stabilization="extreme", scale_up_stabilization_window_s=30.0)
    assert follow(limits, [10, 10, 20, 20, 12, 20, 20]) == [10, 10, 10, 20, 12, 12, 20]
    limits = pace(stabilization="extreme", scale_up_stabilization_window_s=30.0)
    assert follow(limits, [10, 10, 20, 12, 20, 20]) == [10, 10, 10, 12, 12, 20]


def test_growth_within_a_period_of_kubernetes():
    # From 1: max(2, 5) = 5; 15 s later 10, 20, 40.
    assert follow(pace(Hpa), [50] * 5, replicas=1) == [5, 10, 20, 40, 50]
    # Twice in 15 s: of the 9 added the 4 of 7 s ago count.
    assert follow(pace(Hpa), [50] * 4, replicas=2, step_s=7) == [6, 6, 6, 12]


@pytest.mark.parametrize(("select", "up", "down"), [("max", 16, 5), ("min", 12, 7), ("disabled", 10, 10)])
def test_one_of_several_rates_counts(select, up, down):
    rates = Rates(up=(Rate(percent=60, period_s=60), Rate(replicas=2, period_s=60)), select=select,
                  down=(Rate(percent=50, period_s=60), Rate(replicas=3, period_s=60)))
    assert Limits(rates).bounds(0, 10) == (down, up)


def test_shrinking_may_be_disabled_alone():
    assert Limits(Rates(select_down="disabled")).bounds(0, 10) == (10, 20)


def test_changes_of_a_period_add_up():
    limits = Limits(Rates(up=(Rate(replicas=4, period_s=60),), down=(Rate(replicas=3, period_s=30),)))
    limits.note(0, 3)
    assert limits.bounds(30 * S, 13) == (10, 14)        # 10 + 4; the 3 no longer count for shrinking
    limits.note(30 * S, -2)
    assert limits.bounds(40 * S, 11) == (10, 14)        # 60 s ago 10; 30 s ago 13
    assert limits.bounds(60 * S, 11) == (8, 17)         # 13 + 4, and 11 - 3


def test_a_change_on_its_way_is_not_decided_twice():
    limits = pace(Hpa)
    assert limits.due(at(0, 2), {0: 2}) == {0: 2}
    assert limits.due(at(15, 2), {0: 2}) == {}
    limits.acted({0: 2})
    assert limits.due(at(30, 4), {0: 1}) == {0: 1}


def test_the_last_changes_are_cut_first():
    assert cut({1: 3, 0: 2, 2: -4}, 1, 4) == {1: 3, 0: 1, 2: -4}
    assert cut({1: -3, 0: -2}, -1, 3) == {1: -3}


def test_one_replica_of_each_role_is_kept():
    pools = [replace(variant(i, (0,) * count), role=role)
             for i, (role, count) in enumerate((("prefill", 2), ("decode", 1), ("decode", 2)))]
    assert keeping_one(observed(*pools), {0: -2, 2: -2, 1: -1}) == {0: -1, 2: -2}
    assert keeping_one(observed(*pools), {0: 1, 1: -1}) == {0: 1, 1: -1}


def test_pools_bound_recommendations():
    seen = observed(variant(0, (0, 0), room=1))
    assert pace(Hpa).due(Observation(0, seen.variants, 0, seen.finished), {0: 9}) == {0: 1}
    with pytest.raises(ValueError, match="give percent or replicas"):
        Rate(period_s=15.0)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=40), st.integers(0, 12))
def test_the_lowest_of_a_window_is_that_of_all_its_values(steps, window_ns):
    lowest, seen, now_ns = Lowest(window_ns), [], 0
    for gap_ns, value in steps:
        now_ns += gap_ns
        expected = min([value, *(each for time_ns, each in seen if time_ns > now_ns - window_ns)])
        seen.append((now_ns, value))

        assert lowest.with_value(now_ns, value) == expected
