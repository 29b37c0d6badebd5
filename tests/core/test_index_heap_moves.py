import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simulator.core.index_heap import IndexHeap


def test_the_earliest_index_is_first_and_of_equals_the_one_that_came_first():
    heap = IndexHeap()
    for order, (slot, time_ns) in enumerate([(3, 20), (1, 10), (2, 10)]):
        heap.move(slot, time_ns, order)

    assert heap.first() == (10, 1)


def test_an_index_that_is_moved_keeps_its_tie():
    heap = IndexHeap()
    heap.move(0, 10, 0)
    heap.move(1, 5, 1)
    heap.move(1, 10, 9)

    assert heap.first() == (10, 0)


def test_there_is_no_first_of_none():
    assert IndexHeap().first() is None


class MovesMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.heap, self.model, self.order = IndexHeap(1), {}, 0

    @rule(slot=st.integers(0, 12), time_ns=st.integers(0, 6))
    def move(self, slot, time_ns):
        self.order += 1
        self.heap.move(slot, time_ns, self.order)
        self.model[slot] = (time_ns, self.model[slot][1] if slot in self.model else self.order)

    @rule(slot=st.integers(0, 14))
    def drop(self, slot):
        if slot in self.model:
            self.heap.remove_row(slot)
            del self.model[slot]
        else:
            with pytest.raises(KeyError):
                self.heap.remove_row(slot)

    @invariant()
    def the_first_is_the_least(self):
        self.heap.check()
        first = min(((*when, slot) for slot, when in self.model.items()), default=None)
        assert self.heap.first() == (first and (first[0], first[2]))


TestMoves = pytest.mark.slow(MovesMachine.TestCase)
TestMoves.settings = settings(max_examples=60, stateful_step_count=40)
