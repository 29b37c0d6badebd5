"""Max-min fair rates: the definition, an oracle in plain Python, and examples by hand."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collective.flow.fair_share import FairShare

MAX_HOPS = 4
CAPACITIES = st.lists(st.sampled_from([0.1, 1.0, 2.5, 50.0]), min_size=1, max_size=8)


def progressive_filling(capacities, routes):
    """Return the fair rates: raise all together, stop those whose link is full."""
    rates, left, is_open = dict.fromkeys(routes, 0.0), list(capacities), set(routes)
    while is_open:
        users = [[slot for slot in is_open if link in routes[slot]] for link in range(len(left))]
        rise = min(left[link] / len(slots) for link, slots in enumerate(users) if slots)
        for link, slots in enumerate(users):
            left[link] -= rise * len(slots)
        for slot in is_open:
            rates[slot] += rise
        full = [link for link, slots in enumerate(users) if slots and left[link] <= 1e-12 * capacities[link]]
        is_open -= {slot for link in full for slot in users[link]}
    return rates


def shared(capacities, routes):
    share = FairShare(np.array(capacities), MAX_HOPS)
    for slot, links in enumerate(routes):
        share.begin(slot, links)
    return share


def test_flows_through_one_link_share_it_equally():
    # 12 bytes per ns among 4
    assert shared([12.0], [[0]] * 4).rates() == dict.fromkeys(range(4), 3.0)


def test_what_a_slow_flow_leaves_goes_to_the_others():
    # link 1 holds flow 0 at 1; flows 1 and 2 share the 9 that it leaves of link 0
    assert shared([10.0, 1.0], [[0, 1], [0], [0]]).rates() == {0: 1.0, 1: 4.5, 2: 4.5}


def test_a_flow_over_two_full_links_gets_the_smaller_share():
    # the parking lot: three flows on link 0, of which one goes on to link 1 with one more
    assert shared([3.0, 4.0], [[0, 1], [0], [0], [1]]).rates() == {0: 1.0, 1: 1.0, 2: 1.0, 3: 3.0}


def test_bandwidth_of_a_flow_that_ended_goes_to_the_rest():
    share = shared([6.0], [[0], [0], [0]])
    share.rates()
    share.end(1)

    assert share.rates() == {0: 3.0, 2: 3.0}


def test_a_change_spreads_over_links_that_share_flows():
    # 0: {a}, 1: {a, b}, 2: {b, c}. With all three a = 1, b = 5 - 1 = 4, c = 10 - 4 = 6; without a: b = c = 5
    share = shared([1.0, 5.0, 10.0], [[0, 1], [1, 2], [2]])

    assert share.rates() == {0: 1.0, 1: 4.0, 2: 6.0}
    share.end(0)
    assert share.rates() == {1: 5.0, 2: 5.0}


@given(CAPACITIES, st.data())
def test_rates_are_those_of_progressive_filling_after_every_change(capacities, data):
    links = st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=MAX_HOPS, unique=True)
    share, routes = FairShare(np.array(capacities), MAX_HOPS), {}
    for _ in range(data.draw(st.integers(1, 8))):
        for slot in data.draw(st.lists(st.integers(0, 11), max_size=6, unique=True)):
            if slot in routes:
                share.end(slot)
                del routes[slot]
            else:
                routes[slot] = data.draw(links)
                share.begin(slot, routes[slot])
        rates = share.rates()
        share.check()
        assert rates == pytest.approx(progressive_filling(capacities, routes), rel=1e-9)


@given(CAPACITIES, st.data())
def test_history_does_not_matter(capacities, data):
    routes = data.draw(st.lists(
        st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=MAX_HOPS, unique=True), max_size=10))
    at_once, one_by_one = shared(capacities, routes), FairShare(np.array(capacities), MAX_HOPS)
    for slot, links in enumerate(routes):
        one_by_one.begin(slot, links)
        one_by_one.rates()

    assert one_by_one.rates() == pytest.approx(at_once.rates(), rel=1e-9)


def test_the_check_finds_a_flow_without_its_fair_rate():
    share = shared([6.0], [[0]])
    share.rates()
    share.begin(1, [0])         # it has no rate before the next sharing

    with pytest.raises(RuntimeError, match="bottleneck"):
        share.check()


@pytest.mark.parametrize("links", [[], [0, 0], [2], [-1], [0, 1, 2, 3, 4]])
def test_a_route_that_cannot_be_is_refused(links):
    with pytest.raises(ValueError, match=r"links|no link"):
        FairShare(np.ones(2), MAX_HOPS).begin(0, links)


def test_a_slot_is_used_once():
    share = shared([1.0], [[0]])

    with pytest.raises(ValueError, match="has a flow"):
        share.begin(0, [0])
    with pytest.raises(ValueError, match="has no flow"):
        share.end(1)
