"""Choices of the routers of vLLM's production-stack: cases of cluster_2026/production_stack.jsonl.

A token stands for a character, and a block for a chunk of 128; a chunk is a shared text by its content. Rates are known
by their order alone: an endpoint was sent as many requests within the window as others have a lower rate. Of a hash
ring only the sameness of choices can be repeated.
"""
import json
from functools import cache

import pytest

from routing.faces import context_of, view_of, workload
from simulator import registry
from simulator.core.draws import Draws
from support.goldens import GOLDENS

PATH = GOLDENS / "cluster_2026" / "production_stack.jsonl"
CHUNK = 128
STEP_NS = 61 * 10**9            # longer than the window of rates
MOST_EQUAL = 8                  # endpoints that may tie: words 0 .. 7 reach each of them
ROUTERS = {
    "round_robin": ("round_robin", {"counter": "open_set"}),
    "session": ("session", {"otherwise": "lowest_rate"}),
    "prefixaware": ("prefixaware", {"counts_rest": True, "ties": "first"})}

pytestmark = pytest.mark.skipif(not PATH.exists(), reason="no recorded cases of production-stack")


@cache
def cases():
    return [json.loads(line) for line in PATH.read_text().splitlines()]


def requests_of(ops):
    """Return the requests of a case, and at last one that nothing is like."""
    prompts = [op.get("prompt", "-") for op in ops]
    pieces = [[(f"{len(prompt[i:i + CHUNK])} {prompt[i:i + CHUNK]}", len(prompt[i:i + CHUNK]))
               for i in range(0, len(prompt), CHUNK)] for prompt in prompts]
    sessions = list(dict.fromkeys(op.get("session") for op in ops if op.get("session")))
    return workload([*pieces, 1], session=[
        *(sessions.index(op["session"]) if op.get("session") else -1 for op in ops), -1])


class Case:
    """A recorded case with our router."""

    def __init__(self, case):
        self.ops, self.urls = case["ops"], sorted(case["urls"])
        self.view, requests = view_of(len(self.urls)), requests_of(case["ops"])
        name, keys = ROUTERS[case["router"]]
        if case["prefix_min_match_length"] is not None:
            keys = keys | {"min_match_tokens": case["prefix_min_match_length"]}
        chosen, context = registry.load("router", name), context_of(
            self.view, requests, block_size=CHUNK, draws=Draws.replaying(range(MOST_EQUAL)))
        self.router = chosen(chosen.Parameters(**keys), context)

    def look(self, number, tries):
        """Show the state before a choice; return all choices of so many tries."""
        op, now_ns = self.ops[number], (number + 1) * STEP_NS
        self.view.account_array["is_routable"] = [url in op["endpoints"] for url in self.urls]
        self.view.touch()
        for url, rate in op["qps"].items():
            for _ in range(1 + sum(other < rate for other in op["qps"].values())):
                self.router.note_sent(len(self.ops), self.urls.index(url), now_ns)
        return {self.urls[self.router.choose_replica(number, now_ns)] for _ in range(tries)}

    def follow(self, number):
        """Note that a request went where it was sent."""
        self.router.note_sent(number, self.urls.index(self.ops[number]["chosen"]), (number + 1) * STEP_NS)


def test_round_robin_counts_for_each_set_of_endpoints():
    for recorded in (each for each in cases() if each["router"] == "round_robin"):
        case = Case(recorded)
        for number, op in enumerate(case.ops):
            assert case.look(number, 1) == {op["chosen"]}, (recorded["seed"], number)


def test_sessions_stay_and_others_go_to_the_lowest_rate():
    for recorded in (each for each in cases() if each["router"] == "session"):
        case, theirs, ours = Case(recorded), {}, {}
        for number, op in enumerate(case.ops):
            [found] = case.look(number, 1)
            if op["session"]:
                key = op["session"], *op["endpoints"]
                assert found in op["endpoints"]
                assert theirs.setdefault(key, op["chosen"]) == op["chosen"]
                assert ours.setdefault(key, found) == found, (recorded["seed"], number)
            else:
                assert found == op["chosen"], (recorded["seed"], number)


def test_prefixes_choose_among_the_same_endpoints():
    for recorded in (each for each in cases() if each["router"] == "prefixaware"):
        case = Case(recorded)
        for number, op in enumerate(case.ops):
            expected = {op["chosen"]} if op["candidates"] is None else {*op["candidates"]}
            assert case.look(number, MOST_EQUAL) == expected, (recorded["seed"], number)
            case.follow(number)
