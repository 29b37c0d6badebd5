"""Routers of SGLang's gateway, by examples worked out by hand."""
from collections import Counter

import pytest

from routing.faces import router_of, send, tell, view_of, workload

SECOND = 10**9


def chosen(router, row, number=40, now_ns=0):
    """Return the replicas that a request gets, asked several times."""
    return {router.choose_replica(row, now_ns) for _ in range(number)}


def test_manual_keeps_a_key_at_its_replica_when_others_open():
    requests = workload([100] * 40, session=[0] * 40)
    view = view_of(4, is_routable=[0, 1, 0, 0])
    router = router_of("manual", view, requests)
    assert send(router, 0) == 1

    tell(view, is_routable=1)

    assert {send(router, row) for row in range(1, 40)} == {1}


def test_manual_remembers_two_replicas_and_prefers_the_older():
    requests = workload([100] * 9, session=0)
    view = view_of(3, is_routable=[1, 0, 0])
    router = router_of("manual", view, requests)
    places = []
    # the key is given 0, then 1, returns to 0; then it is given 2, which drops 0, so that 1 is the older
    for row, is_open in enumerate(([1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1])):
        tell(view, is_routable=is_open)
        places.append(send(router, row))

    assert places == [0, 1, 0, 2, 1, 2]


@pytest.mark.parametrize(("assignment", "expected"), [("random", {0, 1, 2}), ("min_load", {1}), ("min_group", {2})])
def test_manual_gives_a_new_key_a_replica(assignment, expected):
    # replica 0: two keys in one request each; 1: two keys, in_flight set to 1; 2: one key with 5 requests
    requests = workload([100] * 12, tenant=[0, 1, 2, 3, 4, 4, 4, 4, 4, 9, -1, 5])
    view = view_of(3)
    router = router_of("manual", view, requests, key="tenant", assignment=assignment)
    for row, replica in enumerate([0, 0, 1, 1, 2, 2, 2, 2, 2]):
        router.note_sent(row, replica, 0)
    tell(view, in_flight=[2, 1, 5])

    assert chosen(router, 9) == expected
    assert chosen(router, 10) == {0, 1, 2}              # without a key: any

    router.note_left(0, 0, 0)                           # replica 0 has one key, as 2
    assert assignment != "min_group" or chosen(router, 9) == {0, 2}


def test_manual_forgets_idle_keys_at_its_looks():
    # idle from 10 s on; looks at 4, 8, 12 s
    requests = workload([100] * 3, session=0)
    view = view_of(2, is_routable=[1, 0])
    router = router_of("manual", view, requests, max_idle_s=10.0, eviction_interval_s=4.0, assignment="min_load")
    send(router, 0)
    tell(view, is_routable=1)                           # replica 1 is free, 0 has a request

    assert router.choose_replica(1, 12 * SECOND - 1) == 0
    assert router.choose_replica(1, 12 * SECOND) == 1


def test_prefix_hash_takes_the_owner_up_to_the_limit_then_the_first_of_the_least():
    # total 8 + 1 = 9 over 4 replicas, x 1.25 = 2.8125
    requests = workload([[("a", 300), ("", 50)], [("a", 300), ("", 70)]])
    view = view_of(4)
    router = router_of("prefix_hash", view, requests)
    owner = router.choose_replica(0, 0)
    assert router.choose_replica(1, 0) == owner
    others = [replica for replica in range(4) if replica != owner]

    loads = dict(zip(others, [4, 1, 1], strict=True)) | {owner: 2}
    tell(view, in_flight=[loads[i] for i in range(4)])
    assert router.choose_replica(0, 0) == owner

    loads = dict(zip(others, [3, 1, 1], strict=True)) | {owner: 3}
    tell(view, in_flight=[loads[i] for i in range(4)])
    assert router.choose_replica(0, 0) == others[1]
    assert router.scores(0, 0).tolist() == [float(i == others[1]) for i in range(4)]


def test_prefix_hash_hashes_the_first_tokens_only():
    requests = workload([[("a", 256), ("", 50)], [("a", 256), ("b", 70)], [("a", 200), ("b", 100)]] * 2)
    router = router_of("prefix_hash", view_of(64), requests)

    places = [router.choose_replica(row, 0) for row in range(3)]

    assert places[0] == places[1] != places[2]


def sent(router, view, requests, tokens, now_ns=0):
    """Send prompts of these lengths one after the other; return their replicas."""
    rows = range(sent.next, sent.next + len(tokens))
    sent.next += len(tokens)
    requests.requests["prompt_tokens"][rows.start:rows.stop] = tokens
    return [send(router, row, now_ns) for row in rows]


@pytest.fixture
def bucket():
    """Return a function that makes a router over three replicas, and sends prompts by it."""
    sent.next = 0
    requests, view = workload([1] * 20), view_of(3)

    def make(**keys):
        router = router_of("bucket", view, requests, **keys)
        return router, view, lambda tokens, now_ns=0: sent(router, view, requests, tokens, now_ns)
    return make


def test_first_ranges_divide_the_span(bucket):
    # 4096 // 3 = 1365: 0 to 1364, 1365 to 2729, the rest
    router, _, send_all = bucket(balance_abs_threshold=10**9)

    assert send_all([1364, 1365, 2729, 2730]) == [0, 1, 1, 2]
    assert router.ranges() == [(0, 1364), (1, 2729)]


def test_ranges_of_equal_work_and_uneven_work(bucket):
    # 33 is in the first range; 33 - 0 > 32: the next two go to the least. 101 // 3 = 33: 33 reaches it; 34 does, too,
    # and is not above the beginning 34: 34 + 33 = 67.
    router, _, send_all = bucket(adjust_interval_s=10.0)
    first = send_all([33, 34, 34])
    assert first[0] == 0
    assert sorted(first[1:]) == [1, 2]

    # the first request still sees the work 33, 34, 34; then old work is forgotten, and 33 - 0 > 32
    later = send_all([33, 33, 33], 11 * SECOND)

    assert router.ranges() == [(0, 33), (1, 67)]
    assert later[0] == 0
    assert sorted(later[1:]) == [1, 2]


def test_ranges_follow_the_lengths_of_the_window(bucket):
    # 100 // 3 = 33: 5 + 10 + 15 + 20 reach it, then 24 + 26
    router, _, send_all = bucket(balance_abs_threshold=300, adjust_interval_s=3.0)
    send_all([24, 5, 10, 26, 15, 20])

    send_all([21], 4 * SECOND)

    assert router.ranges() == [(0, 20), (1, 26)]


def test_ranges_stay_while_the_work_is_within_twice(bucket):
    router, _, send_all = bucket(balance_abs_threshold=10**6, adjust_interval_s=3.0)
    send_all([30, 30, 30])                              # 90 // 3 = 30: 30, then 31 + 30
    send_all([10, 50, 119], 4 * SECOND)                 # 179 // 3 = 59, below 2 x 30
    assert router.ranges() == [(0, 30), (1, 61)]
    send_all([1], 8 * SECOND)
    assert router.ranges() == [(0, 30), (1, 61)]

    send_all([1] * 3, 11 * SECOND)                      # 1 // 3 = 0: the others have left the window
    assert router.ranges() == [(0, 1), (1, 2)]


def test_a_replica_that_opens_begins_new_ranges_with_all_lengths_at_the_first(bucket):
    router, view, send_all = bucket(balance_abs_threshold=10**6)
    assert send_all([4000]) == [2]

    tell(view, is_routable=[1, 0, 1])

    assert send_all([1, 4000]) == [0, 0]
    assert [replica for replica, _ in router.ranges()] == [0]


def test_power_of_two_compares_reported_tokens():
    # 100 + 50, 80 + 60, 200: of the pairs, 1 wins two and 0 one, 2 none
    view = view_of(3, waiting_tokens=[100, 80, 0], running_tokens=[50, 60, 200], in_flight=[0, 9, 0])
    router = router_of("power_of_two", view, metric="reported_tokens")

    found = Counter(router.choose_replica(0, 0) for _ in range(300))

    assert found[2] == 0
    assert found[1] > found[0] > 0
