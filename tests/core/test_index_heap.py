import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simulator.core.index_heap import IndexHeap


def pop_all(heap):
    return [heap.pop_row() for _ in range(len(heap))]


def test_rows_leave_by_priority_then_arrival_then_rank():
    heap = IndexHeap()
    heap.push_row(0, priority=1, arrival_ns=0, tie_rank=0)
    heap.push_row(1, priority=-1, arrival_ns=9, tie_rank=3)
    heap.push_row(2, priority=-1, arrival_ns=9, tie_rank=1)
    heap.push_row(3, priority=-1, arrival_ns=8, tie_rank=2)

    assert pop_all(heap) == [3, 2, 1, 0]


def test_an_empty_queue_has_no_row():
    heap = IndexHeap()

    assert (heap.top_row(), heap.pop_row(), heap.sorted_rows()) == (-1, -1, [])


@pytest.mark.parametrize("num_rows", [0, 9])
@pytest.mark.parametrize("row", range(9))
def test_a_row_can_be_removed_from_anywhere(row, num_rows):
    heap = IndexHeap(num_rows)
    for other in range(9):
        heap.push_row(other, priority=0, arrival_ns=7 * other % 9, tie_rank=other)
    left = [other for other in heap.sorted_rows() if other != row]

    heap.remove_row(row)

    heap.check()
    assert pop_all(heap) == left


@pytest.mark.parametrize("num_rows", [0, 5])
def test_removing_a_row_that_is_not_there_is_an_error(num_rows):
    heap = IndexHeap(num_rows)
    heap.push_row(3, 0, 0, 0)

    with pytest.raises(KeyError):
        heap.remove_row(4)
    assert heap.top_row() == 3


def test_an_emptied_queue_can_be_used_again():
    heap = IndexHeap()
    heap.push_row(3, 0, 0, 0)
    heap.empty()
    heap.push_row(4, 0, 0, 0)

    assert pop_all(heap) == [4]


class IndexHeapMachine(RuleBasedStateMachine):
    """Against a sorted list of keys."""

    num_rows = 0

    def __init__(self):
        super().__init__()
        self.heap = IndexHeap(self.num_rows)
        self.model = []
        self.next_row = 0

    @rule(keys=st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 4)), min_size=1, max_size=20), down=st.booleans())
    def push(self, keys, down):
        for priority, arrival_ns in keys:
            rank = -self.next_row if down else self.next_row
            self.heap.push_row(self.next_row, priority, arrival_ns, rank)
            self.model.append((priority, arrival_ns, rank, self.next_row))
            self.next_row += 1
        self.model.sort()

    @rule()
    def pop(self):
        assert self.heap.pop_row() == (self.model.pop(0)[3] if self.model else -1)

    @rule(data=st.data())
    def remove(self, data):
        if self.model:
            entry = data.draw(st.sampled_from(self.model))
            self.heap.remove_row(entry[3])
            self.model.remove(entry)

    @invariant()
    def agree(self):
        self.heap.check()
        assert len(self.heap) == len(self.model)
        assert self.heap.top_row() == (self.model[0][3] if self.model else -1)
        assert self.heap.sorted_rows() == [entry[3] for entry in self.model]


class PlacedHeapMachine(IndexHeapMachine):
    """With places known."""

    num_rows = 800

    @rule()
    def empty(self):
        self.heap.empty()
        self.model.clear()


SETTINGS = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
TestIndexHeapMachine = IndexHeapMachine.TestCase
TestIndexHeapMachine.settings = SETTINGS
TestPlacedHeapMachine = PlacedHeapMachine.TestCase
TestPlacedHeapMachine.settings = SETTINGS
