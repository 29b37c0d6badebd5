import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from support.core_faces import TimedRows

NEVER_NS = 2**63 - 1
TIMED = st.tuples(st.integers(0, 5) | st.integers(0, NEVER_NS), st.integers(0, 2**40))


def test_the_earliest_comes_first_and_of_equal_times_the_lowest_row():
    heap = TimedRows()
    for time_ns, row in ((30, 1), (10, 7), (30, 0), (10, 2), (20, 5)):
        heap.push(time_ns, row)

    assert heap.first_ns() == 10
    assert [heap.pop() for _ in range(len(heap))] == [(10, 2), (10, 7), (20, 5), (30, 0), (30, 1)]
    assert heap.first_ns() == NEVER_NS


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | TIMED, max_size=120))
def test_rows_come_and_go_as_in_a_sorted_list(steps):     # None: the first goes
    heap, expected = TimedRows(), []
    for step in steps:
        if step is not None:
            heap.push(*step)
            heapq.heappush(expected, step)
        elif expected:
            assert heap.pop() == heapq.heappop(expected)
        assert len(heap) == len(expected)
        assert heap.first_ns() == (expected[0][0] if expected else NEVER_NS)
    assert [heap.pop() for _ in expected] == sorted(expected)
