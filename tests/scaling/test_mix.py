"""The cheapest mix of pools, by worked numbers."""
from types import SimpleNamespace

import numpy as np
import pytest

from scaling.test_policies import observed, variant
from simulator.domain import records
from simulator.scaling.mix import Mix, MixParameters, MixProfile, cheapest

CELLS = {"input_tokens": (128, 1024), "output_tokens": (64,)}


def profile(name, *rates):
    return MixProfile(pool=name, requests_per_s=tuple((rate,) for rate in rates))


def done(count, prompt_tokens=128):
    rows = np.zeros(count, records.REQUEST)
    rows["status"], rows["prompt_tokens"], rows["output_tokens"] = records.COMPLETED, prompt_tokens, 64
    return rows


def at(now_s, finished, *variants):
    seen = observed(*variants, finished=finished)
    return type(seen)(round(now_s * 1e9), seen.variants, 0, seen.finished)


def test_one_kind_needs_the_sum_of_its_loads():
    # 3 a second: .6258 / .807 + 1.1922 / .505 + .3699 / .462 + .8118 / .307 = 6.58: 7.
    demand = 3 * np.array([[.2086, .3974], [.1233, .2706]])
    assert cheapest([1.01], [[[.807, .505], [.462, .307]]], demand, 2) == [7]
    assert cheapest([1.01], [[[.807, .505], [.462, .307]]], demand * 0, 2) == [0]


def test_each_cell_goes_to_the_kind_that_serves_it_cheaply():
    # Short ones: 4 a second on two cheap replicas; long ones: 2 a second on two dear ones, which alone serve them.
    assert cheapest([1.0, 4.0], [[2.0, 0.0], [10.0, 1.0]], np.array([4.0, 2.0]), 1) == [2, 2]


def test_slices_of_a_cell_may_be_served_by_different_kinds():
    # 3 a second. Three cheap replicas cost 3; at twice the price 6, two dear ones 5, one of each 4.5, by thirds.
    costs, rates = [1.0, 2.5], [[1.0], [2.0]]
    assert cheapest(costs, rates, np.array([3.0]), 3) == [3, 0]
    assert cheapest([2.0, 2.5], rates, np.array([3.0]), 3) == [1, 1]
    assert cheapest([2.0, 2.5], rates, np.array([3.0]), 1) == [0, 2]


def test_pools_follow_the_demand_of_the_window():
    # 60 short requests in 10 s are 6 a second, 3 replicas of 2; 20 s later the window of 20 s has none of them.
    policy = Mix(MixParameters(**CELLS, profiles=(profile("pool 0", 2.0, 1.0),), window_s=20.0))
    pool = variant(0, (0,))

    assert policy.decide(at(10, done(60), pool)) == {0: 2}
    assert policy.decide(at(20, done(0), pool)) == {0: 1}       # 3 a second in 20 s
    assert policy.decide(at(30, done(0), pool)) == {0: -1}
    assert policy.decide(at(40, done(60, prompt_tokens=900), pool)) == {0: 5}       # long ones: 6 a second of 1


@pytest.mark.parametrize(("keys", "message"), [
    ({"input_tokens": (9, 3)}, "input_tokens: expected ascending lengths, found"),
    ({"profiles": (profile("a", 1.0),)}, 'profiles: expected 2 rows of 1 rates for pool "a"'),
    ({"profiles": (profile("a", 1.0, 1.0),) * 2}, "profiles: give each pool once"),
    ({"profiles": (profile("a", 1.0, 0.0),)}, "profiles: some cell has no pool that can serve it")])
def test_profiles_that_do_not_fit_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        MixParameters(**CELLS | {"profiles": (profile("a", 1.0, 1.0),)} | keys)


def test_each_pool_has_a_profile():
    given = MixParameters(**CELLS, profiles=(profile("a", 1.0, 1.0),))
    assert dict(Mix.faults(given, 10.0, (SimpleNamespace(name="b"),))) == {"profiles": 'there is no pool "a"'}
    assert list(Mix.faults(given, 10.0, ())) == [("profiles", 'missing for pool "default"'),
                                                 ("profiles", 'there is no pool "a"')]
    assert not list(Mix.faults(given, 10.0, (SimpleNamespace(name="a"),)))
