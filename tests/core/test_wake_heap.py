import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulator.core.clock import NEVER_NS
from simulator.core.wake_heap import WakeHeap


def test_the_earliest_replica_is_on_top():
    heap = WakeHeap(3)
    heap.set_time(0, 30)
    heap.set_time(1, 10)
    heap.set_time(2, 20)

    assert heap.top() == (1, 10)


def test_a_wake_time_can_become_later_and_earlier():
    heap = WakeHeap(3)
    heap.set_time(0, 30)
    heap.set_time(1, 10)

    heap.set_time(1, 40)
    assert heap.top() == (0, 30)
    heap.set_time(1, 29)
    assert heap.top() == (1, 29)


def test_equal_times_fall_to_the_lowest_index():
    heap = WakeHeap(7)
    for index in (6, 3, 5):
        heap.set_time(index, 10)

    assert heap.top() == (3, 10)


def test_never_removes_a_replica():
    heap = WakeHeap(2)
    heap.set_time(0, 1)
    heap.set_time(1, 2)

    heap.set_time(0, NEVER_NS)
    assert heap.top() == (1, 2)
    heap.set_time(1, NEVER_NS)
    assert heap.top() == (0, NEVER_NS)


def test_a_single_replica_is_its_own_top():
    heap = WakeHeap(1)
    heap.set_time(0, 5)

    assert heap.top() == heap.second() == (0, 5)


def test_the_second_is_the_one_that_follows_the_first():
    heap = WakeHeap(5)
    for index, time_ns in enumerate([30, 10, 20, 40, 15]):
        heap.set_time(index, time_ns)

    assert heap.second() == (4, 15)


@pytest.mark.parametrize("size", [0, -1, 2**24 + 1])
def test_an_impossible_size_is_refused(size):
    with pytest.raises(ValueError, match="size"):
        WakeHeap(size)


class WakeHeapMachine(RuleBasedStateMachine):
    """Against a plain list of wake times."""

    @initialize(size=st.integers(1, 20))
    def create(self, size):
        self.heap = WakeHeap(size)
        self.model = [NEVER_NS] * size

    @rule(data=st.data(), time_ns=st.integers(0, 5) | st.just(NEVER_NS) | st.integers(0, NEVER_NS))
    def set_time(self, data, time_ns):
        index = data.draw(st.integers(0, len(self.model) - 1))
        self.heap.set_time(index, time_ns)
        self.model[index] = time_ns

    @invariant()
    def agree(self):
        self.heap.check()
        earliest = min(self.model)
        assert self.heap.top() == (self.model.index(earliest), earliest)


TestWakeHeapMachine = WakeHeapMachine.TestCase
TestWakeHeapMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, derandomize=True)
