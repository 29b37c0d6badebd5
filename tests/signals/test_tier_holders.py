from itertools import count, takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.signals.holder_sets import HolderSets
from simulator.signals.tier_holders import TierHolders

DEVICE, HOST, DISK, SHARED = range(4)


def holding(num_replicas, device=(), members=None, reach=(), chunk_blocks=1, **held):
    """Return holders of which (hash, replica) are on the device; `held`: host, disk, shared likewise."""
    blocks = HolderSets(num_replicas)
    for hash, replica in device:
        blocks.note(hash, replica, True)
    holders = TierHolders(blocks, range(num_replicas) if members is None else members, reach, chunk_blocks)
    for medium, name in enumerate(("host", "disk", "shared"), 1):
        for hash, holder in held.get(name, ()):
            holders.tell(medium, hash, holder, True)
    return holders


def test_each_medium_goes_on_where_the_one_above_ends():
    # Text 1 .. 6. Replica 0 computes on behind 1; 2, 3 are in its host, 4 on its disk, 5 nowhere. Replica 1 has nothing
    # on the device. The store has 2 .. 6: behind the device of replica 0 that is five, but 1 is missing for replica 1.
    holders = holding(2, [(1, 0), (6, 0)], host=[(1, 1), (2, 1), (2, 0), (3, 0)], disk=[(4, 0), (4, 1), (6, 0)],
                      shared=[(each, 0) for each in range(2, 7)], reach=[[0, 1]])
    found = holders.matches(range(1, 7), range(1, 7), media=[HOST, DISK, SHARED])
    assert found == [[1, 0], [2, 2], [1, 0], [5, 0]]


def test_of_a_chunk_the_blocks_behind_the_device_count():
    # Chunks 12, 14, 16 of two blocks each of text 1 .. 7. The device has three blocks: one of chunk 14 is left, then
    # 16; block 7 is in no whole chunk.
    holders = holding(1, [(1, 0), (2, 0), (3, 0)], host=[(12, 0), (14, 0), (16, 0)], chunk_blocks=2)
    assert holders.matches(range(1, 8), [12, 14, 16], media=[HOST]) == [[3], [3], [0], [0]]


def test_each_block_counts_at_the_best_medium_that_has_it():
    # 1 device, 2 disk, 3 host and device, 4 host, 5 nowhere.
    holders = holding(1, [(1, 0), (3, 0), (6, 0)], host=[(3, 0), (4, 0)], disk=[(2, 0), (4, 0)])
    assert holders.matches(range(1, 7), range(1, 7), order=[DEVICE, HOST, DISK]) == [[2], [1], [1], [0]]
    assert holders.matches(range(1, 7), range(1, 7), order=[HOST, DISK, DEVICE]) == [[1], [2], [1], [0]]
    assert holders.matches(range(1, 7), range(1, 7), order=[DEVICE, HOST]) == [[1], [0], [0], [0]]


def test_who_is_no_member_or_does_not_reach_a_store_has_nothing():
    holders = holding(3, [(1, 0), (1, 1), (1, 2)], members=[0, 2], shared=[(2, 1)], reach=[[0], [2]])
    assert holders.matches([1, 2], [1, 2], media=[SHARED]) == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert holders.matches([1, 2], [1, 2], order=[SHARED, DEVICE]) == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 1]]


# ---- against a look at every block of every replica


def run_from(start, end, has):
    return len(list(takewhile(has, range(start, end))))


def in_turn(has, num_blocks, media):
    device = run_from(0, num_blocks, lambda i: has(DEVICE, i))
    host = run_from(device, num_blocks, lambda i: has(HOST, i)) if {HOST, DISK} & {*media} else 0
    disk = run_from(device + host, num_blocks, lambda i: has(DISK, i)) if DISK in media else 0
    shared = run_from(device, num_blocks, lambda i: has(SHARED, i)) if SHARED in media else 0
    return [device, host, disk, shared]


def at_best(has, num_blocks, order):
    found = [0] * 4
    for i in range(num_blocks):
        best = next((medium for medium in order if has(medium, i)), None)
        if best is None:
            break
        found[best] += 1
    return found


@st.composite
def cases(draw):
    num_replicas = draw(st.sampled_from([1, 3, 64, 65, 130]))
    few = st.sampled_from(sorted({0, num_replicas - 1, num_replicas // 2, min(64, num_replicas - 1)}))
    chunk_blocks, num_blocks = draw(st.integers(1, 3)), draw(st.integers(0, 9))
    held = st.sets(st.tuples(st.integers(0, 9), few), max_size=40)
    reach = draw(st.lists(st.lists(few, max_size=3), max_size=2))
    shared = draw(st.sets(st.tuples(st.integers(0, 9), st.integers(0, max(len(reach) - 1, 0))), max_size=15))
    return (num_replicas, chunk_blocks, num_blocks, draw(held), draw(held), draw(held), shared if reach else set(),
            reach, draw(st.sets(few)))


@settings(max_examples=300, deadline=None)
@given(cases(), st.sets(st.sampled_from([HOST, DISK, SHARED])),
       st.permutations([DEVICE, HOST, DISK, SHARED]), st.integers(1, 4))
def test_matches_are_those_of_a_plain_look(case, media, order, num_ordered):
    num_replicas, chunk_blocks, num_blocks, device, host, disk, shared, reach, strangers = case
    members = sorted({*range(num_replicas)} - strangers)
    holders = holding(num_replicas, device, members, reach, chunk_blocks, host=host, disk=disk, shared=shared)
    num_chunks, order = num_blocks // chunk_blocks, order[:num_ordered]
    on_turn = holders.matches(range(num_blocks), range(num_chunks), media=media)
    at_once = holders.matches(range(num_blocks), range(num_chunks), order=order)
    holders.check()
    for replica in range(num_replicas):
        def has(medium, i, replica=replica):
            chunk = i // chunk_blocks
            if medium == DEVICE:
                return (i, replica) in device
            if chunk >= num_chunks:
                return False
            if medium == SHARED:
                return any((chunk, store) in shared and replica in readers
                           for store, readers in zip(count(), reach, strict=False))
            return (chunk, replica) in (host if medium == HOST else disk)

        expected = in_turn(has, num_blocks, media) if replica in members else [0] * 4
        assert [on_turn[medium][replica] for medium in range(4)] == expected
        assert [at_once[medium][replica] for medium in range(4)] == (
            at_best(has, num_blocks, order) if replica in members else [0] * 4)


def test_what_is_gone_is_found_no_more():
    holders = holding(2, host=[(1, 0), (1, 1)])
    holders.tell(HOST, 1, 0, False)
    assert holders.matches([1], [1], media=[HOST])[HOST] == [0, 1]
    assert holders.held_by(HOST, 0) == set()
    assert holders.held_by(HOST, 1) == {1}
