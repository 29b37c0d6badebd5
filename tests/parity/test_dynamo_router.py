"""Dynamo's KV router, release 1.6.1: its recorded choices are ours, and its accounts of tokens, blocks and requests.

Choices are compared where they are not drawn: without a temperature. A tie allows each replica of least cost.
"""
import pytest

from simulator import registry
from simulator.testing.views import context_of, workload
from support.cached_view import CachedView
from support.goldens import GOLDENS
from support.router_recordings import cases

ALL = cases("ai-dynamo-runtime", has=("prompts",))
KEYS = {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT": "overlap_credit",
        "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY": "credit_decay", "DYN_ROUTER_PREFILL_LOAD_SCALE": "prefill_weight",
        "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT": "request_weight",
        "DYN_ROUTER_TEMPERATURE": "temperature", "DYN_ROUTER_TRACK_PREFILL_TOKENS": "track_prefill_tokens"}
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded decisions of Dynamo's router under {GOLDENS}")


class Recorded:
    """A case, and our router of its workers."""

    def __init__(self, case):
        self.case, self.size = case, case["block_size"]
        selects = [op for op in case["ops"] if op["op"] == "select"]
        self.rows = {op["id"]: row for row, op in enumerate(selects)}
        self.requests = workload([self.pieces(op["prompt_ref"]) for op in selects])
        self.view = CachedView(case["workers"])
        self.view.state_array["block_size"] = self.size
        router = registry.load("router", "dynamo")
        keys = {KEYS[name]: value == "true" if value in ("true", "false") else float(value)
                for name, value in case["config"].items()}
        self.router = router(router.Parameters(**keys), context_of(self.view, self.requests, block_size=self.size))
        self.worker = {}

    def pieces(self, prompt):
        """Return a prompt: blocks that its group shares, then the tokens that it has in all requests with it."""
        group, shared_blocks, tokens = self.case["prompts"][prompt]
        shared = shared_blocks * self.size
        return [piece for piece in ((f"group {group}", shared), (f"prompt {prompt}", tokens - shared)) if piece[1]]

    def select(self, op, now_ns):
        row = self.rows[op["id"]]
        self.view.blocks = op["device_blocks"]
        scores = self.router.scores(row, now_ns).tolist()
        choice = self.router.choose_replica(row, now_ns)
        if not float(self.case["config"].get("DYN_ROUTER_TEMPERATURE", 0)):
            best = {i for i, score in enumerate(scores) if score == max(scores)}
            assert {choice, op["worker"]} <= best, op["id"]
        self.worker[row] = op["worker"]
        self.view.account_array["in_flight"][op["worker"]] += 1
        self.router.note_sent(row, op["worker"], now_ns)

    def go_on(self, op, now_ns):
        """Repeat an operation after which the loads are known."""
        account = self.router.account
        if op["op"] == "select":
            self.select(op, now_ns)
            return
        row = self.rows[op["id"]]
        if op["op"] == "prefill_done":
            account.note_prefilled(row, self.worker[row])
        elif op["op"] == "output_block":
            account.note_output_block(row, self.worker[row], op["decay_fraction"])
        else:
            assert op["op"] == "free"
            self.view.account_array["in_flight"][self.worker[row]] -= 1
            self.router.note_left(row, self.worker[row], now_ns)

    def loads(self):
        return [[i, *load, int(self.view.account_array["in_flight"][i])]
                for i, load in enumerate(self.router.account.loads())]


def test_choices_and_accounts_are_those_of_the_router():
    for case in ALL:
        recorded = Recorded(case)
        for step, op in enumerate(case["ops"]):
            if "loads_after" in op:
                recorded.go_on(op, step)
                assert recorded.loads() == op["loads_after"], (case["seed"], step)
        recorded.router.account.check()
