"""The balancer against a slow twin, and what every placement keeps."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.experts import eplb, placement
from support.experts import of_ranks


def slow_slots(loads, num_slots):
    slots = list(range(len(loads)))
    while len(slots) < num_slots:
        slots.append(max(range(len(loads)), key=lambda i: (loads[i] / slots.count(i), -i)))
    return slots


def slow_pack(loads, num_bins):
    room, bins, sums = len(loads) // num_bins, [[] for _ in range(num_bins)], [0.0] * num_bins
    if room == 1:
        return [[i] for i in range(num_bins)]
    for item in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        best = min((i for i in range(num_bins) if len(bins[i]) < room), key=lambda i: (sums[i], i))
        bins[best].append(item)
        sums[best] += loads[item]
    return bins


@st.composite
def layouts(draw):
    ranks, per_rank = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 5))
    num_slots = ranks * per_rank
    num_experts = draw(st.integers(max(1, num_slots // 2), num_slots))
    loads = draw(st.lists(st.integers(0, 1000), min_size=num_experts, max_size=num_experts))
    return [float(load) for load in loads], num_slots, ranks


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_the_balancer_decides_what_a_slow_twin_decides(layout):
    loads, num_slots, ranks = layout

    slots = eplb.replicate(loads, num_slots)
    assert slots == slow_slots(loads, num_slots)
    each = [loads[i] / slots.count(i) for i in slots]
    assert eplb.pack(each, ranks) == slow_pack(each, ranks)


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_every_expert_has_a_slot_and_every_slot_an_expert(layout):
    loads, num_slots, ranks = layout
    slots = eplb.rebalance(np.array([loads]), num_slots, ranks)
    copies = placement.num_copies(slots, len(loads))[0]

    assert slots.shape == (1, num_slots)
    assert copies.min() >= 1
    assert copies.sum() == num_slots
    assert of_ranks(slots, np.array([loads]), ranks).sum() == pytest.approx(sum(loads))


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_no_copy_is_busier_than_the_mean_of_ranks_and_the_busiest_of_copies(layout):
    """Longest first into equal room: no rank is above the mean by more than its copies but one could be."""
    loads, num_slots, ranks = layout
    slots = eplb.rebalance(np.array([loads]), num_slots, ranks)
    each = placement.of_slots(slots, np.array([loads]))[0]
    busiest = of_ranks(slots, np.array([loads]), ranks).max()

    assert busiest <= sum(loads) / ranks + num_slots // ranks * each.max() + 1e-9
    assert busiest >= each.max() - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_zipf_loads_are_never_worse_than_linear(seed):
    rng = np.random.default_rng(seed)
    loads = rng.permuted(np.arange(1.0, 65) ** -1.0)[None, :]
    linear = of_ranks(placement.initial("linear", 64, 0, 8, 1), loads, 8).max()
    packed = of_ranks(eplb.rebalance(loads, 64, 8), loads, 8).max()
    copied = of_ranks(eplb.rebalance(loads, 80, 8), loads, 8).max()

    assert copied <= packed <= linear


def test_groups_stay_on_their_node():
    rng = np.random.default_rng(1)
    loads = rng.integers(1, 100, (3, 16)).astype(float)
    slots = eplb.rebalance(loads, 24, 8, num_groups=4, num_nodes=2)

    for row in slots:
        nodes = [{expert // 4 for expert in half.tolist()} for half in row.reshape(2, 12)]
        assert not nodes[0] & nodes[1]
        assert nodes[0] | nodes[1] == {0, 1, 2, 3}
        assert len(nodes[0]) == 2


def test_groups_that_do_not_divide_by_nodes_are_as_none():
    loads = np.arange(1.0, 13)[None, :]

    assert (eplb.rebalance(loads, 16, 4, num_groups=3, num_nodes=2) == eplb.rebalance(loads, 16, 4)).all()


def test_ranks_that_do_not_divide_by_nodes_are_on_one():
    loads = np.arange(1.0, 13)[None, :]

    assert (eplb.rebalance(loads, 12, 6, num_groups=4, num_nodes=4) == eplb.rebalance(loads, 12, 6)).all()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_nodes_are_balanced_apart_from_one_another(data):
    """What the hierarchy decides on a node is what the balancer decides of its experts alone."""
    nodes, ranks, size = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([4, 8])), 3
    groups, per_rank = nodes * data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    num_experts = groups * size
    num_slots = ranks * (-(-num_experts // ranks) + per_rank)
    loads = np.array([data.draw(st.lists(st.integers(1, 99), min_size=num_experts, max_size=num_experts))], dtype=float)
    slots = eplb.rebalance(loads, num_slots, ranks, groups, nodes)[0].reshape(nodes, -1)
    packed = slow_pack(loads.reshape(groups, size).sum(axis=1).tolist(), nodes)

    for held, mine in zip(slots, packed, strict=True):
        experts = [group * size + i for group in mine for i in range(size)]
        alone = eplb.rebalance(loads[:, experts], num_slots // nodes, ranks // nodes)[0]
        assert held.tolist() == [experts[i] for i in alone]


def test_moved_experts_are_those_that_a_rank_did_not_hold():
    before, after = np.array([[0, 1, 2, 3], [0, 1, 2, 3]]), np.array([[1, 0, 2, 3], [0, 2, 1, 1]])

    # layer 0: only places within rank 0; layer 1: rank 0 gets 2, rank 1 gets 1, twice in one copy
    assert placement.num_moved(before, after, 2).tolist() == [1, 1]
