import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.core_faces import IndexLists

NUM_LISTS = 3


def contents(lists, k=0):
    forwards, backwards = lists.forwards(k), lists.backwards(k)
    assert forwards == backwards[::-1]
    return forwards


def filled(*elements):
    lists = IndexLists(2, 10)
    for element in elements:
        lists.push_back(0, element)
    return lists


def test_elements_pushed_to_the_back_keep_their_order():
    assert contents(filled(3, 1, 2)) == [3, 1, 2]


def test_elements_pushed_to_the_front_are_reversed():
    lists = IndexLists(1, 4)
    for element in (0, 1, 2):
        lists.push_front(0, element)

    assert contents(lists) == [2, 1, 0]


@pytest.mark.parametrize(("where", "expected"), [(3, [3, 9, 1, 2]), (1, [3, 1, 9, 2]), (2, [3, 1, 2, 9])])
def test_an_element_can_be_inserted_after_another(where, expected):
    lists = filled(3, 1, 2)

    lists.insert_after(0, where, 9)

    assert contents(lists) == expected


@pytest.mark.parametrize(("element", "left"), [(3, [1, 2]), (1, [3, 2]), (2, [3, 1])])
def test_an_element_can_be_removed_from_anywhere(element, left):
    lists = filled(3, 1, 2)

    lists.remove(0, element)

    assert contents(lists) == left
    assert not lists.is_linked(element)
    lists.check()


@pytest.mark.parametrize(("first", "last", "expected"), [
    (3, 3, [1, 2, 4, 3]), (3, 1, [2, 4, 3, 1]), (1, 2, [3, 4, 1, 2]), (2, 4, [3, 1, 2, 4]), (3, 4, [3, 1, 2, 4])])
def test_a_stretch_of_elements_can_be_moved_to_the_end(first, last, expected):
    lists = filled(3, 1, 2, 4)

    lists.move_back(0, first, last)

    assert contents(lists) == expected
    lists.check()


def test_the_front_of_an_empty_list_is_nothing():
    lists = filled(3)

    assert [lists.pop_front(0), lists.pop_front(0)] == [3, -1]
    assert contents(lists) == []


def test_an_element_can_move_to_another_list():
    lists = filled(3, 1, 2)

    lists.remove(0, 1)
    lists.push_back(1, 1)

    assert (contents(lists, 0), contents(lists, 1)) == ([3, 2], [1])


def test_growing_the_universe_keeps_the_lists():
    lists = filled(3, 1, 2)
    lists.grow(10_000)
    lists.push_back(0, 9_999)

    assert contents(lists) == [3, 1, 2, 9_999]
    lists.check()


def test_the_face_refuses_an_element_that_is_in_a_list_or_outside_the_universe():
    lists = filled(3)

    for element in (3, 10, -1):
        with pytest.raises(ValueError, match="element"):
            lists.push_back(1, element)


class IndexListMachine(RuleBasedStateMachine):
    """Several lists over one universe, against plain lists."""

    def __init__(self):
        super().__init__()
        self.lists = IndexLists(NUM_LISTS, 8)
        self.model = [[] for _ in range(NUM_LISTS)]
        self.universe = 8

    def unlinked(self):
        return sorted(set(range(self.universe)) - {element for listed in self.model for element in listed})

    def linked(self):
        return [(k, element) for k, listed in enumerate(self.model) for element in listed]

    @precondition(unlinked)
    @rule(data=st.data(), k=st.integers(0, NUM_LISTS - 1), at_back=st.booleans())
    def push(self, data, k, at_back):
        element = data.draw(st.sampled_from(self.unlinked()))
        if at_back:
            self.lists.push_back(k, element)
            self.model[k].append(element)
        else:
            self.lists.push_front(k, element)
            self.model[k].insert(0, element)

    @precondition(lambda self: self.linked() and self.unlinked())
    @rule(data=st.data())
    def insert_after(self, data):
        k, where = data.draw(st.sampled_from(self.linked()))
        element = data.draw(st.sampled_from(self.unlinked()))
        self.lists.insert_after(k, where, element)
        self.model[k].insert(self.model[k].index(where) + 1, element)

    @precondition(linked)
    @rule(data=st.data())
    def remove(self, data):
        k, element = data.draw(st.sampled_from(self.linked()))
        self.lists.remove(k, element)
        self.model[k].remove(element)

    @rule(k=st.integers(0, NUM_LISTS - 1))
    def pop_front(self, k):
        assert self.lists.pop_front(k) == (self.model[k].pop(0) if self.model[k] else -1)

    @rule(more=st.integers(0, 5))
    def grow(self, more):
        self.universe += more
        self.lists.grow(self.universe)

    @invariant()
    def agree(self):
        self.lists.check()
        assert [contents(self.lists, k) for k in range(NUM_LISTS)] == self.model
        assert [self.lists.size(k) for k in range(NUM_LISTS)] == [len(listed) for listed in self.model]
        assert not any(self.lists.is_linked(element) for element in self.unlinked())


TestIndexListMachine = IndexListMachine.TestCase
TestIndexListMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, derandomize=True)
