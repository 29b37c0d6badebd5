import heapq
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.faces import build_face

NEVER_NS = 2**63 - 1
TIMED = st.tuples(st.integers(0, 5) | st.integers(0, NEVER_NS), st.integers(0, 2**40))


@pytest.fixture(scope="module")
def new_heap(tmp_path_factory):
    return build_face(Path(__file__).with_name("row_heap_face.pyx"), tmp_path_factory.mktemp("row_heap_face")).Face


def test_the_earliest_comes_first_and_of_equal_times_the_lowest_row(new_heap):
    heap = new_heap()
    for time_ns, row in ((30, 1), (10, 7), (30, 0), (10, 2), (20, 5)):
        heap.push(time_ns, row)

    assert heap.first_ns() == 10
    assert [heap.pop() for _ in range(len(heap))] == [(10, 2), (10, 7), (20, 5), (30, 0), (30, 1)]
    assert heap.first_ns() == NEVER_NS


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | TIMED, max_size=120))
def test_rows_come_and_go_as_in_a_sorted_list(new_heap, steps):     # None: the first goes
    heap, expected = new_heap(), []
    for step in steps:
        if step is not None:
            heap.push(*step)
            heapq.heappush(expected, step)
        elif expected:
            assert heap.pop() == heapq.heappop(expected)
        assert len(heap) == len(expected)
        assert heap.first_ns() == (expected[0][0] if expected else NEVER_NS)
    assert [heap.pop() for _ in expected] == sorted(expected)
