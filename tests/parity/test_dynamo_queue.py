"""The queue of Dynamo's KV router, release 1.6.1: at each step the requests that leave it are ours.

A request goes where it was sent: to one of the workers of least cost.
"""
import numpy as np
import pytest

from simulator import registry
from simulator.domain.router_queue import RouterQueueParameters
from simulator.routing.queueing.kv_queue import KvQueue
from simulator.testing.views import context_of, workload
from support.cached_view import CachedView
from support.goldens import GOLDENS
from support.router_recordings import cases

ALL = cases("ai-dynamo-runtime", has=("seconds_between",))
KEYS = {"DYN_ROUTER_QUEUE_THRESHOLD": ("threshold", float), "DYN_ROUTER_QUEUE_POLICY": ("order", str)}
AFTER_RELEASE_NS = 80_000_000
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded queues of Dynamo's router under {GOLDENS}")


class Recorded:
    """A case, with our queue and our router of its workers."""

    def __init__(self, case):
        selects = [op for op in case["ops"] if op["op"] == "select"]
        self.ids = [op["id"] for op in selects]
        self.requests = workload([op["tokens"] for op in selects])
        self.requests.facts = {
            "strict_priority": np.array([op["strict_priority"] or 0 for op in selects]),
            "priority_jump_s": np.array([round(max(op["priority_jump"] or 0, 0) * 1e9) for op in selects])}
        self.view = CachedView(case["workers"])
        self.view.blocks = [0] * case["workers"]
        self.view.state_array["max_batched_tokens"] = case["max_num_batched_tokens"]
        router = registry.load("router", "dynamo")
        self.router = router(router.Parameters(), context_of(self.view, self.requests, block_size=case["block_size"]))
        keys = dict(KEYS[name] for name in case["config"])
        self.queue = KvQueue(RouterQueueParameters(**{
            name: kind(value) for (name, kind), value in zip(keys.items(), case["config"].values(), strict=True)}),
            self.router, self.requests)
        self.worker = {}

    def route(self, row, op, now_ns):
        """Send a request to its recorded worker, which must be one of the least cost."""
        sent = dict(op["went"])
        assert self.ids[row] in sent, (op["id"], self.ids[row])
        scores = self.router.scores(row, now_ns).tolist()
        worker = sent[self.ids[row]]
        assert scores[worker] == max(scores), (op["id"], self.ids[row])
        self.worker[row] = worker
        self.view.account_array["in_flight"][worker] += 1
        self.router.note_sent(row, worker, now_ns)
        return self.ids[row]

    def step(self, op, now_ns):
        """Return the requests that are sent in a step."""
        row, gone = self.ids.index(op["id"]), []
        if op["op"] == "select":
            if not self.queue.offer_row(row, now_ns):
                gone.append(self.route(row, op, now_ns))
        elif op["op"] == "prefill_complete":
            self.router.account.note_prefilled(row, self.worker[row])
        else:
            assert op["op"] == "free"
            self.view.account_array["in_flight"][self.worker[row]] -= 1
            self.router.note_left(row, self.worker[row], now_ns)
        while (row := self.queue.next_row(now_ns)) >= 0:
            gone.append(self.route(row, op, now_ns))
        self.queue.check()
        return gone


def test_the_same_requests_leave_the_queue_at_each_step():
    for case in ALL:
        recorded, now_ns = Recorded(case), 0
        for op in case["ops"]:
            now_ns += round(case["seconds_between"] * 1e9) if op["op"] == "select" else AFTER_RELEASE_NS
            assert sorted(recorded.step(op, now_ns)) == sorted(name for name, _ in op["went"]), (case["seed"], op["id"])
            assert recorded.queue.pending() == [tuple(pending) for pending in op["pending"]]
