"""What waits at the gateway, what goes next and what has to go, worked by hand."""
from collections import Counter

import pytest

from admission.gates import S, context_of, labelled_workload, queue_of
from simulator.admission.gateway_queue import GatewayQueue
from simulator.domain.slo_classes import SloClass

MS = S // 1000


def opened(slo_classes, tenants=None, classes=(), **keys):
    """Return a queue over these requests whose detector counts in flight / 10, and the view to set that."""
    context = context_of(labelled_workload(slo_classes, tenants), classes=classes)
    return queue_of(context, "concurrency", {"max_concurrency": 10}, **keys), context.view.account_array


def drained(queue, now_ns=0):
    rows = []
    while len(queue):
        rows.append(queue.next_row(now_ns))
    return rows


def filled(queue, rows, now_ns=0):
    for row in rows:
        assert queue.offer_row(row, now_ns)
    return queue


@pytest.mark.parametrize(("order", "expected"), [
    ("fifo", [0, 1, 2, 3, 4]),
    ("priority", [2, 1, 4, 0, 3]),      # critical, then standard and what is not named, then background
])
def test_order_of_dispatch(order, expected):
    queue, _ = opened(["background", "standard", "critical", "background", None], order=order)

    assert drained(filled(queue, range(5))) == expected


def test_deadlines_order_a_band_and_no_target_means_last():
    # all of priority 3; deadlines: 30 ms, 5 + 20 ms, none, 6 + 20 ms
    classes = [SloClass(name="slow", ttft_ms=30), SloClass(name="fast", ttft_ms=20)]
    queue, _ = opened(["slow", "fast", "none", "fast"], classes=classes, order="slo_deadline")
    for row, now_ms in enumerate((0, 5, 5, 6)):
        queue.offer_row(row, now_ms * MS)

    assert drained(queue) == [1, 3, 0, 2]


def test_tenants_take_turns_by_name():
    queue, _ = opened([None] * 6, ["b", "b", "b", "a", None, "c"], fairness="round_robin")

    # a, b, c, default (who names none), then only b is left
    assert drained(filled(queue, range(6))) == [3, 0, 5, 4, 1, 2]


def test_tenants_take_turns_in_each_band_on_its_own():
    queue, _ = opened(["critical", "batch"] * 3, ["a", "a", "a", "a", "b", "b"], fairness="round_robin")

    assert drained(filled(queue, range(6))) == [0, 4, 2, 1, 5, 3]


def test_fifo_with_turns_takes_tenants_of_all_bands_alike():
    queue, _ = opened(["batch", "batch", "critical"], ["a", "a", "b"], order="fifo", fairness="round_robin")

    assert drained(filled(queue, range(3))) == [0, 2, 1]


def test_a_greedy_tenant_takes_no_more_than_its_turn():
    # a has 90 requests, b and c 30 each: while all have some, each gets a third
    tenants = ["a"] * 90 + ["b"] * 30 + ["c"] * 30
    queue, _ = opened([None] * 150, tenants, fairness="round_robin")
    filled(queue, range(150))

    served = Counter(tenants[queue.next_row(0)] for _ in range(90))

    assert served == {"a": 30, "b": 30, "c": 30}


def test_saturation_holds_everyone():
    queue, accounts = opened(["critical"])
    filled(queue, [0])

    accounts["in_flight"] = 10
    assert queue.next_row(0) == -1
    accounts["in_flight"] = 9
    assert queue.next_row(0) == 0


def test_lower_bands_are_held_earlier():
    # three bands: ceilings 1, 0.8 and 0.6
    queue, accounts = opened(["critical", "standard", "batch", "batch"], lowest_ceiling=0.6)
    filled(queue, range(4))

    accounts["in_flight"] = 8
    assert [queue.next_row(0), queue.next_row(0)] == [0, -1]
    accounts["in_flight"] = 7
    assert [queue.next_row(0), queue.next_row(0)] == [1, -1]
    accounts["in_flight"] = 5
    assert [queue.next_row(0), queue.next_row(0)] == [2, 3]


def test_a_band_counts_from_its_first_request_on():
    queue, accounts = opened(["critical", "batch"], lowest_ceiling=0.5)
    accounts["in_flight"] = 7

    filled(queue, [1])
    assert queue.next_row(0) == 1       # the only band: its ceiling is 1
    filled(queue, [0, 1])
    assert [queue.next_row(0), queue.next_row(0)] == [0, -1]


def test_a_full_band_refuses_and_others_do_not():
    queue, _ = opened(["batch"] * 3 + ["critical"], max_requests_per_band=2)

    assert [queue.offer_row(row, 0) for row in range(4)] == [True, True, False, True]


@pytest.mark.parametrize(("shedding", "evicted"), [
    ("none", [-1, -1, -1]), ("sheddable", [1, 0, -1]), ("lowest", [1, 0, 2])])
def test_a_full_queue_gives_up_the_newest_of_the_lowest_priority(shedding, evicted):
    # background, background, standard wait; critical, critical and critical come
    queue, _ = opened(["background", "background", "standard"] + ["critical"] * 3, max_requests=3, shedding=shedding)
    filled(queue, range(3))

    came = [(queue.offer_row(row, 0), queue.evicted) for row in (3, 4, 5)]

    assert came == [(row >= 0, row) for row in evicted]
    queue.check()


def test_among_classes_of_one_priority_the_newest_request_is_given_up():
    classes = [SloClass(name="spare", priority=-1)]
    queue, _ = opened(["batch", "spare", "batch", "critical", "critical"], classes=classes, max_requests=3,
                      shedding="sheddable")
    filled(queue, range(3))

    assert [(queue.offer_row(row, 0), queue.evicted) for row in (3, 4)] == [(True, 2), (True, 1)]


def test_equals_are_not_given_up_for_each_other():
    queue, _ = opened(["batch", "batch", "background"], max_requests=1, shedding="lowest")
    filled(queue, [0])

    assert not queue.offer_row(1, 0)
    assert not queue.offer_row(2, 0)
    assert queue.evicted == -1


def test_time_to_live_ends_with_the_last_nanosecond():
    queue, _ = opened(["batch", "critical"], ttl_s=1.0)
    queue.offer_row(0, 5)
    queue.offer_row(1, 7)

    assert [queue.expire_row(S + later_ns) for later_ns in (4, 5, 5, 6, 7, 7)] == [-1, 0, -1, -1, 1, -1]


def test_all_that_waited_too_long_are_taken_out_the_oldest_first():
    queue, _ = opened(["batch", "critical"], ttl_s=1.0)
    queue.offer_row(0, 5)
    queue.offer_row(1, 7)

    assert [queue.expire_row(S + 7) for _ in range(3)] == [0, 1, -1]


def test_without_time_to_live_nothing_expires():
    queue, _ = opened(["batch"])

    filled(queue, [0])

    assert queue.expire_row(10**18) == -1


def test_who_gave_up_is_taken_out_once():
    queue, _ = opened(["batch"] * 3, fairness="round_robin")
    filled(queue, range(3))

    assert queue.remove_row(1)
    assert not queue.remove_row(1)
    assert drained(queue) == [0, 2]


def in_flight_queue():
    """Return a queue whose requests 0 to 4 are in flight, sent in this order, and 5 to 7 not yet offered."""
    queue, accounts = opened(
        ["background", "batch", "background", "critical", "batch", "standard", "batch", "plain"],
        classes=[SloClass(name="plain", priority=0)], in_flight_eviction=True)
    for row in range(5):
        filled(queue, [row])
        assert queue.next_row(0) == row
        queue.note_sent(row, 0)
    accounts["in_flight"] = 10
    return queue


def test_the_newest_of_the_lowest_priority_is_recalled_one_at_each_attempt():
    queue = filled(in_flight_queue(), [5])

    recalled = []
    for _ in range(5):
        assert queue.next_row(0) == -1
        recalled.append(queue.recalled)

    assert recalled == [2, 0, 4, 1, -1]         # never 3, which may not be shed


def test_among_classes_of_one_priority_the_request_sent_last_is_recalled():
    classes = [SloClass(name="spare", priority=-1), SloClass(name="plain", priority=0)]
    queue, accounts = opened(["batch", "spare", "batch", "plain"], classes=classes, in_flight_eviction=True)
    for row in (2, 1, 0):
        queue.note_sent(row, 0)
    accounts["in_flight"] = 10
    filled(queue, [3])

    assert [(queue.next_row(0), queue.recalled) for _ in range(4)] == [(-1, 0), (-1, 1), (-1, 2), (-1, -1)]


def test_nobody_is_recalled_for_requests_that_may_be_shed():
    queue = filled(in_flight_queue(), [6])

    assert (queue.next_row(0), queue.recalled) == (-1, -1)
    filled(queue, [7])          # of priority 0, which may not be shed
    assert (queue.next_row(0), queue.recalled) == (-1, 2)


def test_who_has_left_is_not_recalled():
    queue = filled(in_flight_queue(), [5])
    queue.note_left(2, 0)
    queue.note_left(2, 0)       # once more, as after a recall

    assert (queue.next_row(0), queue.recalled) == (-1, 0)


def test_a_request_may_come_back():
    queue = in_flight_queue()
    queue.note_left(0, 0)

    filled(queue, [5, 0])

    assert queue.remove_row(0) and len(queue) == 1
    queue.check()


def test_the_two_regimes_of_dispatch():
    ticks, _ = opened([None], tick_s=0.002)
    departures, _ = opened([None], dispatch="departures")

    assert (ticks.tick_ns, ticks.tries_on_departure) == (2 * MS, False)
    assert (departures.tick_ns, departures.tries_on_departure) == (0, True)


def test_no_request_at_all():
    queue, _ = opened([], fairness="round_robin", ttl_s=1.0)

    assert (queue.next_row(0), queue.expire_row(0), len(queue)) == (-1, -1, 0)


def test_parameters_hang_on_the_class():
    assert GatewayQueue.Parameters.__name__ == "GatewayQueueParameters"
