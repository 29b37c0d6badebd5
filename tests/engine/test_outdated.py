from random import Random

import pytest

from simulator.engine.fleet.outdated import Outdated


def test_who_acted_is_looked_at_once():
    outdated = Outdated(4)
    for replica in (2, 0, 2):
        outdated.note_act(replica)

    assert outdated.take(10) == [0, 2]
    assert outdated.take(11) == []


def test_who_changes_by_itself_is_looked_at_from_that_instant_on():
    outdated = Outdated(4)
    outdated.keep(1, 20)
    outdated.keep(3, 30)

    assert outdated.take(19) == []
    assert outdated.take(20) == [1]
    assert outdated.take(30) == [3]         # at that instant it may have changed, or not yet


def test_who_acts_is_looked_at_before_its_time():
    outdated = Outdated(2)
    outdated.keep(1, 20)
    outdated.note_act(1)
    assert outdated.take(5) == [1]
    outdated.keep(1, None)

    assert outdated.take(20) == []


@pytest.mark.parametrize("seed", range(20))
def test_it_lists_what_a_look_at_every_replica_would_find(seed):
    rng, size, now = Random(seed), 9, 0
    outdated, due, acted = Outdated(size), {}, set()
    for _ in range(300):
        now += rng.choice([0, 1, 5])
        for _ in range(rng.choice([0, 0, 1, 4])):
            replica = rng.randrange(size)
            outdated.note_act(replica)
            acted.add(replica)
        if rng.random() < 0.5:
            expected = sorted(acted | {replica for replica, due_ns in due.items() if due_ns <= now})
            outdated.check()
            assert outdated.take(now) == expected
            for replica in expected:
                due.pop(replica, None)
                if rng.random() < 0.7:
                    due[replica] = now + rng.choice([0, 1, 3, 20])
                outdated.keep(replica, due.get(replica))
            acted.clear()
