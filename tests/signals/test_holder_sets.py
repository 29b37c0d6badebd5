from itertools import takewhile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulator.signals.holder_sets import HolderSets


def holding(num_replicas, **blocks):
    """Return sets in which replica r0, r1, ... holds these hashes."""
    sets = HolderSets(num_replicas)
    for replica, hashes in blocks.items():
        for each in hashes:
            sets.note(each, int(replica[1:]), True)
    return sets


def test_a_match_ends_with_the_first_block_that_is_not_held():
    sets = holding(3, r0=[11, 12, 13], r1=[11, 13])
    assert sets.matches([11, 12, 13, 14]) == [3, 1, 0]


def test_who_lacks_the_first_block_matches_nothing():
    assert holding(2, r1=[12, 13]).matches([11, 12, 13]) == [0, 0]


def test_nothing_matches_no_blocks():
    assert holding(2, r0=[11]).matches([]) == [0, 0]


def test_replicas_beyond_a_word_are_told_apart():
    found = holding(130, r0=[11], r63=[11], r64=[11, 12], r129=[11, 12]).matches([11, 12])
    assert {replica: blocks for replica, blocks in enumerate(found) if blocks} == {0: 1, 63: 1, 64: 2, 129: 2}


def test_a_block_that_came_back_is_held_by_nobody_else():
    sets = holding(2, r0=[11], r1=[11])
    for replica in (0, 1):
        sets.note(11, replica, False)
    sets.note(11, 1, True)
    assert sets.matches([11]) == [0, 1]


class Machine(RuleBasedStateMachine):
    """Against a set of (hash, replica)."""

    @initialize(num_replicas=st.sampled_from([1, 3, 64, 65]))
    def begin(self, num_replicas):
        self.sets, self.held, self.num_replicas = HolderSets(num_replicas), set(), num_replicas

    @rule(hash=st.integers(1, 12), replica=st.integers(0, 64), is_held=st.booleans())
    def note(self, hash, replica, is_held):
        replica %= self.num_replicas
        self.sets.note(hash, replica, is_held)
        (self.held.add if is_held else self.held.discard)((hash, replica))

    @rule(hashes=st.lists(st.integers(1, 12), max_size=6))
    def match(self, hashes):
        expected = [len(list(takewhile(lambda each, replica=replica: (each, replica) in self.held, hashes)))
                    for replica in range(self.num_replicas)]
        assert self.sets.matches(hashes) == expected

    @invariant()
    def agree(self):
        self.sets.check()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_sets_grow_beyond_those_there_was_room_for_at_first():
    sets = holding(2, r0=range(1, 5001), r1=range(1, 3001))     # at first there is room for 1024
    assert sets.matches(range(1, 5001)) == [5000, 3000]
    sets.check()
