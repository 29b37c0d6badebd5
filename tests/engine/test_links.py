"""Flows that share links, max-min fairly; a link carries 8 bytes/s unless said otherwise."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.operations.links import Links

SECOND = 1_000_000_000


def test_a_flow_alone_has_its_link():
    flow = Links([8.0, 8.0]).start(0, 1, 40.0, 0)
    assert flow.end_ns == 5 * SECOND


def test_the_narrower_link_decides():
    links = Links([8.0, 2.0])
    links.start(0, 1, 40.0, 0)
    links.start(1, 0, 40.0, 0)
    assert links.rates() == [(0, 1, 2.0), (1, 0, 2.0)]


def test_both_directions_of_a_link_are_independent():
    links = Links([8.0, 8.0])
    links.start(0, 1, 40.0, 0)
    links.start(1, 0, 40.0, 0)
    assert links.rates() == [(0, 1, 8.0), (1, 0, 8.0)]


def test_what_one_flow_cannot_use_the_others_get():
    # Link 2 takes 2 bytes/s in: flows 0 -> 2 and 3 -> 2 have 1 each. 0 -> 1 gets the other 7 of link 0.
    links = Links([8.0, 8.0, 2.0, 8.0])
    for source, destination in [(0, 2), (3, 2), (0, 1)]:
        links.start(source, destination, 40.0, 0)
    assert links.rates() == [(0, 2, 1.0), (3, 2, 1.0), (0, 1, 7.0)]


def test_a_flow_goes_on_faster_when_another_ends():
    # 4 bytes/s each: after 2 s 8 bytes are through and the first ends; the second has 32 to go, at 8 bytes/s.
    links = Links([8.0, 8.0, 8.0])
    first, second = links.start(0, 1, 8.0, 0), links.start(0, 2, 40.0, 0)
    assert (first.end_ns, second.end_ns) == (2 * SECOND, 10 * SECOND)
    assert links.take_ended(2 * SECOND) == [first]
    assert second.end_ns == 6 * SECOND


def test_a_flow_goes_on_slower_when_another_begins():
    # 8 bytes after 1 s, then 4 bytes/s for the other 32.
    links = Links([8.0, 8.0, 8.0])
    first = links.start(0, 1, 40.0, 0)
    links.start(0, 2, 400.0, SECOND)
    assert first.end_ns == 9 * SECOND


def test_a_flow_that_is_stopped_gives_its_share_back():
    links = Links([8.0, 8.0, 8.0])
    first, second = links.start(0, 1, 40.0, 0), links.start(0, 2, 40.0, 0)
    links.stop(first, SECOND)
    assert links.rates() == [(0, 2, 8.0)]
    assert second.end_ns == SECOND + round(36 / 8 * SECOND)


def test_nothing_passes_a_link_without_bandwidth():
    links = Links([8.0, 0.0])
    assert links.start(0, 1, 40.0, 0).end_ns == 2**63 - 1


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.lists(st.floats(0.5, 100.0), min_size=2, max_size=5), st.data())
def test_rates_are_max_min_fair(bandwidths, data):
    # Every flow has a full link on which no other flow is faster: that is what max-min fair means.
    ends = st.integers(0, len(bandwidths) - 1)
    pairs = data.draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=8))
    links = Links(bandwidths)
    for source, destination in pairs:
        links.start(source, destination, 1e6, 0)
    rates = links.rates()
    out = [[rate for source, _, rate in rates if source == i] for i in range(len(bandwidths))]
    into = [[rate for _, destination, rate in rates if destination == i] for i in range(len(bandwidths))]
    for flows, bandwidth in zip(out + into, bandwidths * 2, strict=True):
        assert sum(flows) <= bandwidth * (1 + 1e-9)
    for source, destination, rate in rates:
        ends = (out[source], bandwidths[source]), (into[destination], bandwidths[destination])
        assert any(np.isclose(sum(flows), bandwidth) and rate >= max(flows) * (1 - 1e-9) for flows, bandwidth in ends)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_equal_flows_end_together_whenever_they_are_looked_at(count):
    # To look at them, at every second, changes no end: the rate stays.
    links = Links([8.0, 8.0])
    flows = [links.start(0, 1, 24.0, 0) for _ in range(count)]
    for second in range(1, 3 * count):
        assert links.take_ended(second * SECOND) == []
    assert {flow.end_ns for flow in flows} == {3 * count * SECOND}
