import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.core_faces import HashMap

# Few homes, some at the seam of the table, so that the runs of neighbours are long, overlap and wrap around.
KEYS = st.builds(lambda home, high: home + (high << 40), st.sampled_from([0, 1, 2, 3, 62, 63]), st.integers(0, 5))


def test_an_absent_key_has_no_value():
    table = HashMap()

    assert table.get_value(0) == -1
    assert table.remove_key(0) == -1


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_every_64_bit_key_is_allowed(key):
    table = HashMap()
    table.put_value(key, 7)

    assert table.get_value(key) == 7
    assert table.remove_key(key) == 7
    assert table.get_value(key) == -1


def test_a_later_value_replaces_the_earlier():
    table = HashMap()
    table.put_value(5, 1)
    table.put_value(5, 2)

    assert (table.get_value(5), len(table)) == (2, 1)


def test_a_negative_value_is_refused():
    with pytest.raises(ValueError, match="-1"):
        HashMap().put_value(5, -1)


def test_removing_a_key_keeps_those_behind_it_in_reach():
    # 0, 64, 128 and 192 share home 0 of 64 and stand at 0, 1, 2, 3; 1 was pushed on to 4.
    table = HashMap()
    for value, key in enumerate((0, 64, 128, 192, 1)):
        table.put_value(key, value)

    table.remove_key(64)

    table.check()
    assert [table.get_value(key) for key in (0, 64, 128, 192, 1)] == [0, -1, 2, 3, 4]


def test_a_key_at_home_behind_a_gap_stays_there():
    # 0 and 64 share home 0 of 64; 2 is at home behind them. Removing 0 moves 64 to the gap but must not move 2.
    table = HashMap()
    for value, key in enumerate((0, 64, 2)):
        table.put_value(key, value)

    table.remove_key(0)

    table.check()
    assert [table.get_value(key) for key in (64, 2)] == [1, 2]


def test_the_map_grows():
    table = HashMap()
    keys = [*range(10_000), *(high << 32 for high in range(1, 200))]    # the latter all share home 0
    for value, key in enumerate(keys):
        table.put_value(key, value)

    table.check()
    assert [table.get_value(key) for key in keys] == list(range(len(keys)))


def test_a_map_without_keys_takes_no_memory_and_knows_nothing():
    table = HashMap()

    assert (table.num_slots, table.get_value(0), table.remove_key(0), len(table), table.values()) == (1, -1, -1, 0, [])
    table.empty()
    table.check()


def test_the_first_key_of_one_map_is_in_no_other():
    first, second = HashMap(), HashMap()
    first.put_value(0, 7)

    assert (first.get_value(0), first.num_slots, first.values()) == (7, 64, [7])
    assert (second.get_value(0), second.num_slots) == (-1, 1)


def test_only_a_new_key_makes_the_map_grow():
    table = HashMap()
    for key in range(32):               # half of 64 slots: full
        table.put_value(key, key)

    table.put_value(31, 99)
    assert (table.num_slots, table.get_value(31)) == (64, 99)
    table.put_value(32, 32)
    assert (table.num_slots, len(table)) == (128, 33)


def test_no_growth_within_the_reserve():
    table = HashMap()
    table.reserve_keys(1000)            # 2048 slots, the power of two from 2000 on
    for key in range(1000):
        table.put_value(key, key)

    assert table.num_slots == 2048


def test_an_emptied_map_can_be_used_again():
    table = HashMap()
    table.put_value(1, 1)
    table.empty()

    assert (len(table), table.get_value(1)) == (0, -1)
    table.put_value(1, 2)
    assert table.get_value(1) == 2


class HashMapMachine(RuleBasedStateMachine):
    """Against a dict."""

    def __init__(self):
        super().__init__()
        self.table = HashMap()
        self.model = {}

    @rule(keys=st.lists(KEYS | st.integers(0, 2**64 - 1), min_size=1, max_size=20), value=st.integers(0, 2**31 - 1))
    def put(self, keys, value):
        for key in keys:
            self.table.put_value(key, value)
            self.model[key] = value

    @rule(key=KEYS)
    def get(self, key):
        assert self.table.get_value(key) == self.model.get(key, -1)

    @rule(key=KEYS)
    def remove_any(self, key):
        assert self.table.remove_key(key) == self.model.pop(key, -1)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_present(self, data):
        key = data.draw(st.sampled_from(list(self.model)))
        assert self.table.remove_key(key) == self.model.pop(key)

    @rule(num_keys=st.integers(0, 300))
    def reserve(self, num_keys):
        self.table.reserve_keys(num_keys)

    @invariant()
    def agree(self):
        self.table.check()
        assert len(self.table) == len(self.model)
        assert all(self.table.get_value(key) == value for key, value in self.model.items())


TestHashMapMachine = HashMapMachine.TestCase
TestHashMapMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
