"""Dynamo's queue in front of its router."""
import numpy as np
import pytest

from routing.faces import router_of, tell, workload
from simulator.domain.router_queue import QueueClass, RouterQueueParameters
from simulator.routing.queueing.kv_queue import KvQueue
from support.cached_view import CachedView

MS = 1_000_000


class Front:
    """Replicas that each have a request with a prefill of 100 tokens, and a queue before their router."""

    def __init__(self, tokens, replicas=3, jumps_s=None, strict=None, columns=None, **keys):
        self.requests = workload([100] * replicas + list(tokens), **columns or {})
        self.requests.labels = {"slo_class": ["chat", "batch"]}
        given = {"priority_jump_s": jumps_s, "strict_priority": strict}
        self.requests.facts = {
            name: np.array([0] * replicas + [round(each * (10**9 if name.endswith("_s") else 1)) for each in values])
            for name, values in given.items() if values is not None}
        view = CachedView(replicas)
        view.blocks = [0] * replicas
        tell(view, max_batched_tokens=1000, block_size=16)
        self.router, self.replicas, self.first = router_of("dynamo", view, self.requests), {}, replicas
        self.queue = KvQueue(RouterQueueParameters(**keys or {"threshold": 0.0}), self.router, self.requests)
        for row in range(replicas):
            self.send(row, row)

    def send(self, row, replica):
        self.replicas[row] = replica
        self.router.note_sent(row, replica, 0)

    def offer(self, number, now_ns=0):
        """Offer a request beyond those that are at replicas from the beginning; route it if it need not wait."""
        row = self.first + number
        waits = self.queue.offer_row(row, now_ns)
        if waits is False:
            self.send(row, self.router.choose_replica(row, now_ns))
        return waits

    def go(self, now_ns=0):
        """Route all requests that may go; return them with their replicas."""
        gone = []
        while (row := self.queue.next_row(now_ns)) >= 0:
            self.send(row, self.router.choose_replica(row, now_ns))
            gone.append((row - self.first, self.replicas[row]))
        self.queue.check()
        return gone

    def leave(self, row):
        self.router.note_left(row, self.replicas[row], 0)


def test_the_example_that_was_run_with_dynamo():
    # The requests come in this order, the second as if it had come a second earlier, the fourth with strict priority.
    front = Front([1600, 160, 320, 320], jumps_s=[0, 1, 0, 0], strict=[0, 0, 0, 1])
    assert [front.offer(i, i * MS) for i in range(3)] == [True] * 3
    front.leave(0)
    assert front.go() == [(1, 0)]                       # before an earlier one; replica 0 is busy again

    assert front.offer(3, 3 * MS)
    front.leave(front.first + 1)
    # Tokens to prefill by replica: 0, 100, 100. It ends when the idle replica gets one.
    assert front.go() == [(3, 0)]
    assert front.queue.pending() == [(2, 1920)]


def test_requests_go_to_busy_replicas_as_long_as_one_is_idle():
    # Replica 0 is idle, but keeps 200 blocks: 32 / 16 + 202 cost more than the load of others until they have enough.
    front = Front([3200, 32, 32, 32, 32, 32, 1600])
    front.router.account.note_prefilled(0, 0)
    front.leave(0)
    front.send(front.first, 0)
    assert [front.offer(i) for i in range(1, 7)] == [True] * 6
    front.router.account.note_prefilled(front.first, 0)

    gone = front.go()

    assert [number for number, _ in gone[:5]] == [1, 2, 3, 4, 5]
    assert {replica for _, replica in gone[:5]} == {1, 2}
    assert gone[5:] in ([], [(6, 1)], [(6, 2)], [(6, 0)])


@pytest.mark.parametrize(("keys", "waits"), [
    ({"threshold": 0.1}, False),                        # 100 tokens are not above 100
    ({"threshold": 0.099}, True),
    ({"threshold_tokens": 99}, True),
    ({"threshold_tokens": 100}, False),
    ({"threshold": 5.0, "threshold_tokens": 99}, True),         # either
])
def test_a_replica_is_busy_above_the_threshold(keys, waits):
    assert Front([50], **keys).offer(0) == waits


@pytest.mark.parametrize(("busy_ratio", "waits"), [(0.66, True), (0.67, False), (1.0, False)])
def test_requests_wait_if_enough_replicas_are_busy(busy_ratio, waits):
    front = Front([50], threshold=0.0, busy_ratio=busy_ratio)
    front.leave(0)                      # 2 of 3 are busy
    assert front.offer(0) == waits


@pytest.mark.parametrize(("order", "jumps_s", "expected"), [
    ("fcfs", [0, 0, 0], [0, 1, 2]), ("fcfs", [0, 0.0025, 0], [1, 0, 2]), ("fcfs", [0, 0.0005, 0], [0, 1, 2]),
    ("lcfs", [0, 0, 0], [2, 1, 0]), ("lcfs", [0.0025, 0, 0], [0, 2, 1]),
    ("wspt", [0, 0, 0], [1, 2, 0]),                     # 1/400, 1/100, 1/200
    ("wspt", [7, 0, 0], [0, 1, 2]),                     # 8/400
])
def test_the_order_of_the_queue(order, jumps_s, expected):
    front = Front([400, 100, 200], replicas=1, jumps_s=jumps_s, threshold=0.0, order=order)
    for i in range(3):
        front.offer(i, i * MS)

    found = []
    for _ in range(3):
        front.leave(front.first + found[-1] if found else 0)
        found += [number for number, _ in front.go()]
    assert found == expected


def test_the_shortest_prompt_is_that_with_the_fewest_uncached_tokens():
    front = Front([400, 100], replicas=1, threshold=0.0, order="wspt")
    front.router.view.blocks = [20]                     # 320 of 400 tokens, so 80 are left; all of 100
    front.offer(0)
    front.router.view.blocks = [0]
    front.offer(1)
    front.leave(0)
    assert front.go() == [(0, 0)]


def test_a_request_that_gives_up_does_not_go():
    front = Front([50, 60], replicas=1)
    front.offer(0)
    front.offer(1)
    front.queue.remove_row(1)
    assert front.queue.pending() == [(1, 60)]
    front.leave(0)
    assert front.go() == [(1, 0)]


@pytest.mark.parametrize(("limits", "taken"), [
    ({"max_requests": 2}, [True, True, None, None]),
    ({"max_prompt_tokens": 101}, [True, True, True, None]),     # 50, 100, 150: compared before adding
    ({"max_cached_tokens": 20}, [True, True, None, None]),      # 16 tokens each are cached
    ({}, [True] * 4),
])
def test_a_full_queue_refuses(limits, taken):
    front = Front([50] * 4, replicas=1, threshold=0.0, classes=(QueueClass(**limits),))
    front.router.view.blocks = [1]
    assert [front.offer(i) for i in range(4)] == taken


def test_limits_are_per_replica():
    front = Front([50] * 5, replicas=2, threshold=0.0, classes=(QueueClass(max_requests=2),))
    assert [front.offer(i) for i in range(5)] == [True] * 4 + [None]


def test_classes_have_queues_of_their_own():
    # Rows of SLO classes: chat (0), batch (1), none (-1); batch has another queue from 100 tokens on.
    small, large = QueueClass(slo_class="batch", threshold=1.0), QueueClass(slo_class="batch", min_tokens=100)
    front = Front([50, 50, 99, 100, 300], replicas=1, columns={"slo_class": [-1, 0, -1, 1, 1, 1]}, threshold=0.0,
                  classes=(QueueClass(), small, large))
    assert [front.offer(i) for i in range(5)] == [True, True, False, True, True]
    assert front.queue.pending() == [(2, 100), (0, 0), (2, 400)]


@pytest.fixture
def two_queues():
    """Return a front with requests of 100 tokens: three in a queue with 100 tokens a turn, six in one with 200."""
    classes = (QueueClass(quantum=100), QueueClass(slo_class="batch", quantum=200))
    front = Front([100] * 9, replicas=1, columns={"slo_class": [-1] * 4 + [1] * 6}, threshold=0.0, classes=classes)
    for i in range(9):
        front.offer(i)
    return front


def test_queues_take_turns_by_tokens(two_queues):
    # All at once: the second queue passes two requests for each one of the first.
    two_queues.leave(0)

    found = [two_queues.queue.next_row(0) - two_queues.first for _ in range(9)]

    assert found == [0, 3, 4, 1, 5, 6, 2, 7, 8]
    assert two_queues.queue.next_row(0) == -1


def test_a_queue_goes_on_only_while_requests_go_at_once(two_queues):
    # One at a time: after 3 the second queue could pay for 4, but the next turn is that of the first.
    found, last = [], 0
    for _ in range(9):
        two_queues.leave(last)
        (number, _), = two_queues.go()
        found.append(number)
        last = two_queues.first + number

    assert found == [0, 3, 1, 4, 2, 5, 6, 7, 8]


def test_large_requests_wait_for_enough_turns():
    classes = (QueueClass(quantum=1), QueueClass(slo_class="batch", quantum=3))
    front = Front([1000, 1500, 800], replicas=1, columns={"slo_class": [-1, -1, 1, 1]}, threshold=0.0, classes=classes)
    front.offer(0)
    front.offer(1)
    front.leave(0)
    assert front.go() == [(1, 0)]                       # 1 and 3 tokens, and 499 more turns: 500 and 1500
    front.offer(2)                                      # 800 tokens; the first queue has 500 of its 1000
    front.leave(front.first + 1)
    assert front.go() == [(2, 0)]                       # 3, and 266 turns of 3 tokens, are more than 800


@pytest.mark.parametrize(("keys", "message"), [
    ({}, "expected threshold or threshold_tokens"),
    ({"threshold": 1.0, "classes": (QueueClass(min_tokens=5),)}, "different min_tokens from 0 on"),
    ({"threshold": 1.0, "classes": (QueueClass(), QueueClass())}, "different min_tokens from 0 on"),
    ({"threshold": 1.0, "classes": (QueueClass(slo_class="chat"),)}, 'one with slo_class = ""'),
    ({"classes": (QueueClass(),)}, "expected threshold or threshold_tokens in each"),
])
def test_queues_that_hold_nothing_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        RouterQueueParameters(**keys)
