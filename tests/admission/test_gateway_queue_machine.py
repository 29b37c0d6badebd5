"""Random offers, dispatches, time-outs and departures: the queue does what its rules say."""
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.gates import context_of, labelled_workload, queue_of
from admission.naive_queue import NEVER_NS, NaiveQueue
from simulator.domain.slo_classes import SloClass, by_name, class_of, priority_of

NAMES = ("critical", "batch", "background", "own", "patient", "spare", "zero", None)
CLASSES = (SloClass(name="own", priority=4, ttft_ms=5e-6), SloClass(name="patient", priority=4, ttft_ms=30e-6),
           SloClass(name="batch", ttft_ms=9e-6), SloClass(name="spare", priority=-1, ttft_ms=2e-6),
           SloClass(name="zero", priority=0))
TENANTS = ("a", "b", "z", None)
MAX_CONCURRENCY = 10

KEYS = st.fixed_dictionaries({
    "order": st.sampled_from(["fifo", "priority", "slo_deadline", "edf"]),
    "fairness": st.sampled_from(["none", "round_robin"]),
    "max_requests": st.sampled_from([0, 1, 3, 6]),
    "max_requests_per_band": st.sampled_from([0, 1, 2, 4]),
    "shedding": st.sampled_from(["none", "sheddable", "lowest"]),
    "lowest_ceiling": st.sampled_from([1.0, 0.75, 0.3]),
    "in_flight_eviction": st.booleans(),
})
LABELS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True).flatmap(     # few, so that they meet
    lambda names: st.lists(st.tuples(st.sampled_from(names), st.sampled_from(TENANTS)), min_size=1, max_size=40))
ACTS = st.lists(st.tuples(st.sampled_from(["offer"] * 4 + ["next"] * 3 + ["remove", "expire", "leave"]),
                          st.integers(0, 3), st.integers(0, 12)), min_size=20, max_size=120)


class Pair:
    """The queue and its naive twin, asked the same."""

    def __init__(self, labels, ttl_ns, keys):
        self.labels, self.clock_ns = labels, 0
        workload = labelled_workload([name for name, _ in labels], [tenant for _, tenant in labels])
        deadlines_ns = [NEVER_NS if i % 5 == 0 else 37 * i % 60 for i in range(len(labels))]     # some are equal
        workload.demands["deadline_ns"] = [-1 if each == NEVER_NS else each for each in deadlines_ns]
        self.context = context_of(workload, classes=CLASSES)
        self.queue = queue_of(self.context, "concurrency", {"max_concurrency": MAX_CONCURRENCY}, ttl_s=ttl_ns / 1e9,
                              **keys)
        known = by_name(CLASSES)
        classes = [class_of(name, known) for name, _ in labels]
        self.naive = NaiveQueue([
            (priority_of(each), NEVER_NS if each.ttft_ms is None else round(each.ttft_ms * 1e6), tenant, due_ns)
            for each, (_, tenant), due_ns in zip(classes, labels, deadlines_ns, strict=True)], ttl_ns=ttl_ns, **keys)
        self.fresh, self.away = list(range(len(labels))), []

    def offer(self, number):
        if self.fresh:
            row = self.fresh.pop(number % len(self.fresh))
            found = self.queue.offer_row(row, self.clock_ns), self.queue.evicted
            assert found == self.naive.offer(row, self.clock_ns)
            self.fresh += [each for each in (found[1], -1 if found[0] else row) if each >= 0]

    def next(self, number):
        self.context.view.account_array["in_flight"] = number
        row, recalled = self.queue.next_row(self.clock_ns), self.queue.recalled
        assert (row, recalled) == self.naive.next(number / MAX_CONCURRENCY)
        if row >= 0:
            self.queue.note_sent(row, self.clock_ns)
            self.naive.sent(row)
            self.away.append(row)

    def leave(self, number):
        if self.away:       # those that were recalled may leave too
            row = self.away.pop(number % len(self.away))
            self.queue.note_left(row, self.clock_ns)
            self.naive.left(row)
            self.fresh.append(row)

    def remove(self, number):
        row = number % len(self.labels)
        assert self.queue.remove_row(row) == self.naive.remove(row)

    def expire(self, _):
        assert self.queue.expire_row(self.clock_ns) == self.naive.expire(self.clock_ns)

    def check(self):
        self.queue.check()
        assert len(self.queue) == len(self.naive.waiting)


@settings(max_examples=400, deadline=None)
@given(LABELS, st.sampled_from([0, 4, 15]), KEYS, ACTS)
def test_queue_follows_its_rules(labels, ttl_ns, keys, acts):
    pair = Pair(labels, ttl_ns, keys)

    for act, waited_ns, number in acts:
        pair.clock_ns += waited_ns
        getattr(pair, act)(number)
        pair.check()
