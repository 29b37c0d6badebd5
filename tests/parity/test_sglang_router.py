"""The SGLang gateway's choices, release 0.3.2: every recorded decision is one of ours.

SGLang matches characters: each character is a block of one token here. Ties may be broken in any way.
"""
from itertools import pairwise

import pytest

from simulator import registry
from simulator.routing.parts.prefix_index import PrefixIndex
from simulator.testing.views import context_of, tell, view_of, workload
from support.goldens import GOLDENS
from support.router_recordings import cases

ALL = cases("sglang-router")
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded decisions of sglang-router under {GOLDENS}")


def pieces(texts):
    """Return prompts with equal prefixes where the texts have equal prefixes, a token for each character."""
    common = {}
    ordered = sorted(set(texts))
    cuts = {text: {len(text)} for text in ordered}
    for text, following in pairwise(ordered):
        differing = (i for i, (a, b) in enumerate(zip(text, following, strict=False)) if a != b)
        common[text] = next(differing, min(len(text), len(following)))
    for i, text in enumerate(ordered):
        for step in (1, -1):
            least, k = len(text), i
            while 0 <= k + step < len(ordered) and least > 0:
                least = min(least, common[ordered[min(k, k + step)]])
                cuts[text].add(least)
                k += step
    for text in ordered:
        cuts[text] = sorted(cuts[text] - {0})
    return [[(text[:end], end - begin) for begin, end in pairwise([0, *cuts[text]])] for text in texts]


class Gateway:
    """Our router for the workers of a case, and the prefixes that were sent to each."""

    def __init__(self, case):
        self.texts = [op["text"] for op in case["ops"] if op["op"] == "send"]
        self.config = dict(case["config"])
        router = registry.load("router", self.config.pop("policy"))
        parameters = registry.parameters_of(router)
        keys = {key: value for key, value in self.config.items() if key in parameters.__struct_fields__}
        self.view = view_of(case["workers"])
        context = context_of(self.view, workload(pieces(self.texts)), block_size=1)
        self.router = router(parameters(**keys), context)
        self.sent = PrefixIndex(context, 2**30)

    def allowed(self, row, loads):
        """Return the workers that may get a request, with our choice among them."""
        tell(self.view, in_flight=loads)
        ours = self.router.choose_replica(row, row)
        if not self.router.has_scores:
            return {ours}
        scores = self.router.scores(row, row).tolist()
        assert scores[ours] == max(scores)
        if min(scores) > -float("inf") and not self.is_with_all(row, loads):
            return {i for i, score in enumerate(scores) if score == max(scores)}
        return {i for i, score in enumerate(scores) if score > -float("inf")}   # any of those with the longest match

    def is_with_all(self, row, loads):
        """Return whether the prefix decides, and all workers have as much of it."""
        matched = self.sent.matched_blocks(row)
        least, most = min(loads), max(loads)
        is_even = most - least <= self.config["balance_abs_threshold"] or (
            most <= self.config["balance_rel_threshold"] * least)
        return is_even and min(matched) == max(matched) > self.config["cache_threshold"] * len(self.texts[row])

    def note_sent(self, row, worker):
        self.router.note_sent(row, worker, row)
        self.sent.note_sent(row, worker)


def test_each_choice_of_the_gateway_is_one_of_ours():
    for case in ALL:
        gateway = Gateway(case)
        sends = [op for op in case["ops"] if op["op"] == "send"]
        taken = list(dict.fromkeys(op["worker"] for op in sends))       # turns follow the order of a hash map
        numbers = {worker: worker if gateway.router.has_scores else taken.index(worker) for worker in taken}
        for row, op in enumerate(sends):
            assert numbers[op["worker"]] in gateway.allowed(row, op["loads_before"]), (case["seed"], op["id"])
            gateway.note_sent(row, numbers[op["worker"]])
