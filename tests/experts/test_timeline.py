"""When loads change, against a counter as vLLM has it; what the balancer knows by then."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.experts import Eplb, Experts, Popularity
from simulator.experts import eplb
from simulator.experts.pricing import ExpertPricing
from simulator.experts.timeline import Arrangement, ExpertTimeline
from support.small_models import MIXTURE, NODE, deploy

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


def grouped(num_groups, node=NODE, num_redundant=0):
    """Return the timeline of 16 experts on 16 ranks; a node has 8."""
    model = replace(MIXTURE, moe=replace(MIXTURE.moe, num_experts=16, num_groups=num_groups))
    ways = {"tensor_parallel": 4, "prefill_context_parallel": 4, "expert_parallel": 16}
    experts = Experts(popularity=Popularity(**ZIPF), eplb=Eplb(num_redundant_experts=num_redundant))
    return ExpertTimeline(replace(deploy(model, node, **ways), experts=experts))


def test_groups_of_experts_stay_on_a_node_of_the_replica():
    line = grouped(4, num_redundant=16)
    expected = eplb.rebalance(line.fracs_of(0), 32, 16, num_groups=4, num_nodes=2)

    assert (line.slots_after(1) == expected).all()
    assert (expected != eplb.rebalance(line.fracs_of(0), 32, 16)).any()
    for row in expected:
        assert not {expert // 4 for expert in row[:16].tolist()} & {expert // 4 for expert in row[16:].tolist()}


@pytest.mark.parametrize(("num_groups", "node", "found"), [
    (4, NODE, []), (1, NODE, []), (1, None, []),
    (4, None, ["no topology.node is named: to the balancer all ranks are one node, and the 4 groups"]),
    (4, replace(NODE, num_accelerators=6), ["4 groups of experts or 16 ranks do not divide by 3 nodes"])])
def test_where_groups_make_no_difference_is_said(num_groups, node, found):
    line = grouped(num_groups, node)
    pricing = ExpertPricing(load=line.load_of(Arrangement()))
    told = [each for each in pricing.warnings(line.deployment, "roofline") if "eplb" in each]

    assert len(told) == len(found)
    assert all(part in each for part, each in zip(found, told, strict=True))


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
