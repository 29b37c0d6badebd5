"""Routers that keep columns of loads choose as a comparison of all scores does."""
import math

import numpy as np
import pytest

from routing.faces import router_of, workload

FEW, MANY, NUM_ROWS = 37, 150, 12        # `weighted` keeps sums of many replicas
FIELDS = {"waiting_prefill_tokens": 16, "running_prefill_tokens": 8, "used_blocks": 1, "in_flight": 1, "waiting": 1}
REPORTED = {"load": "replicas"}
ROUTERS = [("dynamo", REPORTED), ("dynamo", {"overlap": "approximate"} | REPORTED),
           ("dynamo", {"request_weight": 2.5} | REPORTED), ("dynamo", {"overlap_credit": 0.0} | REPORTED),
           ("dynamo", {"prefill_weight": 0.0, "overlap_credit": 0.7} | REPORTED),
           ("dynamo", {"prefill_weight": 0.3} | REPORTED), ("dynamo", {}), ("dynamo", {"overlap": "approximate"}),
           ("dynamo", {"request_weight": 2.5, "credit_decay": 1.0}),
           ("dynamo", {"active_prefill_tokens_threshold": 250.0}), ("kvaware", {"threshold_tokens": 130}),
           ("kvaware", {"threshold_tokens": 0, "rate_window_s": 2.0}), ("weighted", {}),
           ("weighted", {"profile": "llm-d"}), ("weighted", {"profile": "blis-0.7.1", "ties": "number"})]
AFFINITY, QUEUE = ("prefix-affinity", 3.0, {"length_weight": 0.5}), ("queue-depth", 1.0, {})
LOAD = ("load-aware", 1.0, {})
CACHE = ("precise-prefix-cache", 1.0, {"if_equal": "half_if_none"})
TOO_LIGHT = ("prefix-affinity", 1e-18, {"capacity_blocks": 9})          # sums with and without it are equal
ROUTERS += [("weighted", {"scorers": scorers}) for scorers in (
    [QUEUE], [LOAD, AFFINITY, QUEUE], [QUEUE, TOO_LIGHT], [TOO_LIGHT, LOAD], [CACHE, ("active-requests", 1.0, {})],
    [QUEUE, CACHE, AFFINITY], [("endpoint-attribute", 1.0, {}), CACHE])]


def expected_choice(scores, word):
    """Return the replica with the highest score, the `word`-th of several; -1: none can be routed to."""
    best = max(scores)
    equals = [replica for replica, score in enumerate(scores) if score == best]
    return -1 if best == -math.inf else equals[word % len(equals)]


def change(view, rng):
    """Change some replicas: few values, so that many are equal."""
    for replica in rng.integers(0, view.num_replicas, view.num_replicas // 9):
        for name, unit in FIELDS.items():
            array = view.state_array if name in view.state_array.dtype.names else view.account_array
            array[name][replica] = unit * rng.integers(0, 3)
        view.account_array["is_routable"][replica] = rng.random() < 0.9
        view.touch(int(replica))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "keys"), ROUTERS, ids=[f"{name} {keys}" for name, keys in ROUTERS])
def test_the_choice_is_one_of_the_highest_scores(filled_view, name, keys, seed):
    rng = np.random.default_rng(seed)
    word = int(rng.integers(2**40))
    num_replicas = MANY if name == "weighted" else FEW
    cached = {(int(rng.integers(num_replicas)), row): int(rng.integers(1, 9))
              for row in range(NUM_ROWS) for _ in range(6)}
    view = filled_view(num_replicas, cached)
    view.state_array["block_size"], view.state_array["num_blocks"] = 16, 40
    requests = workload([[("shared", 16 * (row % 4 + 1)), ("", 64)] for row in range(NUM_ROWS)])
    router = router_of(name, view, requests, draws=[word], **keys)
    for step in range(150):
        change(view, rng)
        if step == 100:                     # none is open
            view.account_array["is_routable"] = False
            view.touch()
        row, now_ns = int(rng.integers(NUM_ROWS)), step * 10**8
        asks_first = step % 2 == 0
        scores = router.scores(row, now_ns) if asks_first else None

        choice = router.choose_replica(row, now_ns)

        scores = scores if asks_first else router.scores(row, now_ns)
        assert choice == expected_choice(scores.tolist(), 0 if keys.get("ties") == "number" else word)
        if choice >= 0:
            router.note_sent(row, choice, now_ns)
