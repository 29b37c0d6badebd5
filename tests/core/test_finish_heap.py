import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.core.finish_heap import FinishHeap


def pop_all(heap):
    return [heap.pop_slot() for _ in range(len(heap))]


def test_the_sequence_that_ends_first_is_on_top():
    heap = FinishHeap()
    heap.push_slot(iteration=30, order=0, slot=0)
    heap.push_slot(iteration=10, order=1, slot=1)
    heap.push_slot(iteration=20, order=2, slot=2)

    assert heap.top() == (10, 1)
    assert pop_all(heap) == [1, 2, 0]


def test_sequences_that_end_together_leave_in_their_order():
    heap = FinishHeap()
    for order, slot in ((9, 0), (3, 1), (2**39 - 1, 2), (4, 2**24 - 1)):
        heap.push_slot(iteration=5, order=order, slot=slot)

    assert pop_all(heap) == [1, 2**24 - 1, 0, 2]


def test_a_slot_can_be_removed_from_the_middle():
    heap = FinishHeap()
    for slot in range(10):
        heap.push_slot(iteration=slot, order=slot, slot=slot)

    heap.remove_slot(4)

    assert 4 not in heap
    assert pop_all(heap) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_removing_a_slot_that_is_not_there_is_an_error():
    heap = FinishHeap()
    heap.push_slot(iteration=1, order=0, slot=3)

    with pytest.raises(KeyError):
        heap.remove_slot(4)
    assert len(heap) == 1


def test_a_removal_can_move_an_entry_upwards():
    # Level by level, four children each: 0 | 10 1 2 3 | 11 12 13 14 below 10, 4 below 1. The last entry, 4, takes the
    # place of 11, whose parent is 10: it must rise above 10.
    heap = FinishHeap()
    for slot, iteration in enumerate([0, 10, 1, 2, 3, 11, 12, 13, 14, 4]):
        heap.push_slot(iteration, order=slot, slot=slot)

    heap.remove_slot(5)

    heap.check()
    assert pop_all(heap) == [0, 2, 3, 4, 9, 1, 6, 7, 8]


def test_an_emptied_heap_can_be_used_again():
    heap = FinishHeap()
    heap.push_slot(iteration=1, order=0, slot=3)
    heap.empty()
    heap.push_slot(iteration=2, order=0, slot=4)

    assert pop_all(heap) == [4]
    with pytest.raises(IndexError):
        heap.pop_slot()
    with pytest.raises(IndexError):
        heap.top()


def test_check_finds_a_slot_that_is_in_it_twice():
    heap = FinishHeap()
    heap.push_slot(iteration=1, order=0, slot=3)
    heap.push_slot(iteration=2, order=1, slot=3)

    with pytest.raises(RuntimeError, match="twice"):
        heap.check()


class FinishHeapMachine(RuleBasedStateMachine):
    """Against a dict of (iteration, order) by slot."""

    def __init__(self):
        super().__init__()
        self.heap = FinishHeap()
        self.model = {}
        self.pushed = 0

    @rule(iterations=st.lists(st.integers(0, 5) | st.integers(0, 2**62), min_size=1, max_size=30))
    def push(self, iterations):
        for iteration in iterations:
            slot = self.pushed % 2**24
            self.heap.push_slot(iteration, self.pushed, slot)
            self.model[slot] = iteration, self.pushed
            self.pushed += 1

    @precondition(lambda self: self.model)
    @rule()
    def pop(self):
        slot = min(self.model, key=self.model.get)
        assert self.heap.top() == (self.model[slot][0], slot)
        assert self.heap.pop_slot() == slot
        del self.model[slot]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        slot = data.draw(st.sampled_from(list(self.model)))
        self.heap.remove_slot(slot)
        del self.model[slot]

    @invariant()
    def agree(self):
        self.heap.check()
        assert len(self.heap) == len(self.model)
        assert all(slot in self.heap for slot in self.model)

    def teardown(self):
        assert pop_all(self.heap) == sorted(self.model, key=self.model.get)


TestFinishHeapMachine = FinishHeapMachine.TestCase
TestFinishHeapMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, derandomize=True)
