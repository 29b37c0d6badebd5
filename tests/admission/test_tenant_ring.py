"""The next member of a set of integers, against a sorted list."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.admission.tenant_ring import TenantRing


@given(st.sampled_from([1, 5, 64, 65, 4096, 4097, 300_000]), st.data())
def test_ring_finds_the_next_member_in_a_range(universe, data):
    place = st.integers(0, universe - 1)
    ring, members = TenantRing(universe), set()
    for is_added, member in data.draw(st.lists(st.tuples(st.booleans(), place), max_size=60)):
        (ring.put_in if is_added else ring.take_out)(member)
        (members.add if is_added else members.discard)(member)
        ring.check()

        begin, end = min(pair := (data.draw(place), data.draw(place))), max(pair) + 1
        last = data.draw(st.integers(begin - 1, end - 1))
        within = sorted(each for each in members if begin <= each < end)
        expected = next((each for each in within if each > last), within[0] if within else -1)
        assert ring.after(last, begin, end) == expected


def test_an_empty_universe_is_refused():
    with pytest.raises(ValueError, match="universe must be >= 1, found 0"):
        TenantRing(0)
