"""One budget of accelerators for several autoscalers: what is granted, worked out by hand."""
import pytest

from engine.test_scaling import STEADY, serve, settings
from simulator.domain.autoscaling import SharedBudget
from simulator.engine.operations.shared_budget import Mediator
from simulator.scaling.base import Autoscaler

S = 10**9
ONES = {0: 1, 1: 1, 2: 1}


def mediator(least=None, most=None, gpus=ONES, groups=None, ttl_s=360.0):
    return Mediator(SharedBudget(min_gpus=least, max_gpus=most, intent_ttl_s=ttl_s), gpus,
                    groups or {pool: pool for pool in gpus})


def test_a_change_within_the_bounds_is_granted():
    assert mediator(most=10).grant(0, {0: 2}, {0: 4, 1: 4, 2: 0}) == {0: 2}


def test_a_change_beyond_a_bound_is_denied():
    assert mediator(most=8).grant(0, {0: 1}, {0: 4, 1: 4, 2: 0}) == {}
    assert mediator(least=8).grant(0, {0: -1}, {0: 4, 1: 4, 2: 0}) == {}


def test_what_was_granted_counts_before_it_is_carried_out():
    budget, there = mediator(most=9), {0: 4, 1: 4, 2: 0}
    assert budget.grant(0, {0: 1}, there) == {0: 1}
    assert budget.grant(0, {1: 1}, there) == {}
    budget.acted({0: 1})
    assert budget.grant(0, {1: 1}, there) == {1: 1}


def test_a_denied_change_is_granted_with_an_opposite_one():
    # Eight of eight: pool 0 wants two more, pool 1 later two fewer; both at once, the one that gives first.
    budget, there = mediator(least=8, most=8), {0: 4, 1: 4, 2: 0}
    assert budget.grant(0, {0: 2}, there) == {}
    assert list(budget.grant(5 * S, {1: -2}, there).items()) == [(1, -2), (0, 2)]


def test_too_large_a_partner_moves_in_part():
    # Pool 1 gives two; pool 0 asked for five: two of them fit.
    budget, there = mediator(least=8, most=8), {0: 4, 1: 4, 2: 0}
    budget.grant(0, {0: 5}, there)
    assert budget.grant(0, {1: -2}, there) == {1: -2, 0: 2}


def test_the_smallest_partners_come_first():
    # Pools 1 and 2 want 1 and 2 fewer and would be below the floor. Pool 0 wants two more: 1 gives all, 2 all, too, as
    # with both the total, 8 + 2 - 3, is not below 8 - 1.
    budget, there = mediator(least=8, most=8), {0: 2, 1: 3, 2: 3}
    assert budget.grant(0, {2: -2}, there) == budget.grant(0, {1: -1}, there) == {}
    assert budget.grant(0, {0: 2}, there) == {2: -2, 1: -1, 0: 2}


def test_partners_of_the_same_autoscaler_come_first():
    budget = mediator(most=8, gpus={0: 1, 1: 1, 2: 1}, groups={0: 0, 1: 1, 2: 0})
    there = {0: 4, 1: 2, 2: 2}
    least = mediator(least=8, most=8, groups={0: 0, 1: 1, 2: 0})
    for pool in (1, 2):
        least.grant(0, {pool: -2}, there)
    assert least.grant(0, {0: 1}, there) == {2: -2, 0: 1}   # 7 is the floor less one: nothing of pool 1 fits
    assert budget.grant(0, {1: -1}, there) == {1: -1}       # no floor: granted by itself


def test_large_replicas_may_miss_the_floor_by_one():
    # Replicas of 1 and 4: pool 0 grows by one, pool 1 gives four: 8 + 1 - 4 = 5, the floor of 8 less 4 is 4.
    budget, there = mediator(least=8, most=8, gpus={0: 1, 1: 4}), {0: 4, 1: 1}
    assert budget.grant(0, {1: -1}, there) == {}
    assert budget.grant(0, {0: 1}, there) == {1: -1, 0: 1}


def test_changes_in_both_directions_need_no_partner():
    assert mediator(least=8, most=8, groups={0: 0, 1: 0, 2: 0}).grant(0, {0: 1, 1: -1}, {0: 4, 1: 4, 2: 0}) == {
        0: 1, 1: -1}


@pytest.mark.parametrize(("after_s", "granted"), [(360, {0: 1, 1: -1}), (361, {})])
def test_a_wish_grows_old(after_s, granted):
    budget, there = mediator(least=8, most=8), {0: 4, 1: 4, 2: 0}
    budget.grant(0, {0: 1}, there)
    assert budget.grant(after_s * S, {1: -1}, there) == granted


def wishes(*scripts):
    """Return an autoscaler of several models, each with its changes in turn."""
    left = {pool: list(script) for pool, script in enumerate(scripts)}

    class Wishes(Autoscaler):
        def decide(self, observation):
            [variant] = observation.variants
            script = left[variant.index]
            change = script.pop(0) if script else 0
            return {variant.index: change} if change else {}
    return Wishes


def test_replicas_move_between_models_in_a_run():
    # Three replicas, no more. At 10 ms model a wants one more: denied. At 20 ms b gives one: both change at once.
    pools = [{"name": "a", "model": "a", "replicas": 1, "max_replicas": 3},
             {"name": "b", "model": None, "replicas": 2, "max_replicas": 3}]
    outcome = serve(STEADY, wishes([1], [0, -1]), settings(shared_budget=SharedBudget(max_gpus=3, min_gpus=3)),
                    pools=pools)
    assert [change for replica in (0, 1, 2) for change in outcome.changes(replica)] == [(20, "up", "scaling")]
    assert [state for _, state, _ in outcome.changes(4)] == ["draining", "off"]
    assert any("1 changes denied, 1 granted together" in note for note in outcome.diagnosis)
