"""The list of replicas that can be routed to."""
from hypothesis import given
from hypothesis import strategies as st

from routing.faces import tell, view_of
from simulator.routing.parts.open_replicas import OpenReplicas


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=10))
def test_it_lists_the_open_ones(history):
    view = view_of(5)
    listed = OpenReplicas(view)
    assert sorted(listed.list_open()) == [0, 1, 2, 3, 4]
    for is_open in history:
        tell(view, is_routable=is_open)

        assert sorted(listed.list_open()) == [i for i in range(5) if is_open[i]]
        listed.check()
