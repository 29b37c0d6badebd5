"""When loads change, against a counter as vLLM has it; what the balancer knows by then."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.experts import Eplb, Experts, Popularity
from simulator.experts import eplb
from simulator.experts.timeline import Arrangement, ExpertTimeline
from support.small_models import MIXTURE, deploy

ZIPF = {"distribution": "zipf", "s": 1.0}


def timeline(drift=None, balancer=None, model=MIXTURE, **popularity):
    experts = Experts(popularity=Popularity(**ZIPF | popularity, drift_steps=drift), eplb=balancer)
    return ExpertTimeline(replace(deploy(model, tensor_parallel=2, expert_parallel=2), experts=experts))


def counted(steps, drift, interval):
    """Return the arrangement of each iteration, by a counter that begins at three quarters."""
    counter, draw, rearrangements, found = interval - interval // 4, 0, 0, []
    for step in range(steps):
        found.append(Arrangement(draw, rearrangements))
        counter += 1
        if counter >= interval:
            counter, rearrangements = 0, rearrangements + 1
        draw = (step + 1) // drift
    return found


@pytest.mark.parametrize(("drift", "interval"), [(7, 12), (5, 3), (3, 1), (40, 8)])
def test_rearrangements_come_when_vllms_counter_says(drift, interval):
    line = timeline(drift, Eplb(step_interval=interval))
    expected = counted(100, drift, interval)

    assert [line.arrangement(step) for step in range(100)] == expected
    step, changes = 0, []
    while (step := line.next_change(step)) < 100:
        changes.append(step)
    assert changes == [i for i in range(1, 100) if expected[i] != expected[i - 1]]


def test_without_drift_and_balancer_nothing_changes():
    assert timeline().next_change(0) is None


def test_the_balancer_goes_by_the_window_that_it_has_seen():
    # drift at 10 and 20; rearranged after 6 and after 30: the last 15 iterations are 5 of draw 1 and 10 of draw 2
    line = timeline(10, Eplb(window_size=15, step_interval=24, num_redundant_experts=2))

    seen = 5 * line.fracs_of(1) + 10 * line.fracs_of(2)
    assert (line.slots_after(2) == eplb.rebalance(seen, 10, 2)).all()
    assert (line.slots_after(1) == eplb.rebalance(line.fracs_of(0), 10, 2)).all()


def test_a_placement_fits_the_popularity_it_was_made_for_best():
    many = replace(MIXTURE, moe=replace(MIXTURE.moe, num_experts=64))
    line = timeline(1000, Eplb(), many)
    before, fitting, outdated = (line.load_of(Arrangement(*each)).expected for each in ((0, 0), (0, 1), (1, 1)))

    assert fitting < before
    assert fitting < outdated
    assert fitting < 1.01


def test_moved_bytes_are_those_of_the_rank_that_gets_most():
    line = timeline(None, Eplb(num_redundant_experts=2))
    before, after = (slots[0].reshape(2, 5).tolist() for slots in (line.slots_after(0), line.slots_after(1)))
    most = max(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))

    assert most > 0
    assert line.moved_bytes(1) == most * 3 * 64 * 32 * 2          # one layer of experts, 16 bit


def test_draws_are_the_same_whoever_asks_first():
    one, two = timeline(5), timeline(5)
    one.fracs_of(3)

    assert (one.fracs_of(1) == two.fracs_of(1)).all()
    assert (np.sort(one.fracs_of(1)) == np.sort(one.fracs_of(0))).all()
