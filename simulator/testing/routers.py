"""Contracts of routers and scorers."""
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator import registry
from simulator.testing.contract import expect, verify
from simulator.testing.runs import holds_in_a_cluster
from simulator.testing.views import router_of, scorer_of, send, tell, view_of, workload

SECOND_NS = 10**9
UNEQUAL = {"waiting": [3, 0, 1, 2], "running": [5, 0, 5, 5], "in_flight": [8, 0, 6, 7], "used_blocks": [50, 0, 10, 30],
           "num_blocks": 100}


def check_router(name: str, parameters: Mapping[str, Any] | None = None, **sections: Any) -> None:
    """Check that a router keeps the contract of routers.

    Parameters
    ----------
    name : a built-in name, or "module:Class".
    parameters : keys of [cluster.routing] beside `policy`; None: defaults.
    sections : other tables of the experiment, such as pools=[...].

    Raises
    ------
    AssertionError
        The rules that it breaks, a line each.
    """
    registry.load("router", name, [os.getcwd()])
    keys = dict(parameters or {})
    verify(name, ROUTER_RULES, name, keys)
    holds_in_a_cluster(name, {"cluster.routing": {"policy": name, **keys}, "topology.replicas": 3, **sections})


def check_scorer(name: str, parameters: Mapping[str, Any] | None = None, **sections: Any) -> None:
    """Check that a scorer keeps the contract of scorers, as `check_router` does."""
    registry.load("scorer", name, [os.getcwd()])
    keys = dict(parameters or {})
    verify(name, SCORER_RULES, name, keys)
    scorer = {"name": name, "weight": 1.0, **keys}
    holds_in_a_cluster(name, {"cluster.routing": {"policy": "weighted", "scorers": [scorer]}, "topology.replicas": 3,
                              **sections})


def requests():
    """Return 60 requests, some with shared prompts, tenants and sessions."""
    return workload([[("sys", 64), ("", 40)], 100, [("doc", 80)]] * 20, tenant=np.arange(60) % 3 - 1,
                    session=np.arange(60) % 5 - 1)


def closed_replicas_get_nothing(name, keys):
    """A router sends no request to a closed replica."""
    router = router_of(name, view_of(5, is_routable=[0, 1, 0, 1, 0], num_blocks=100), requests(), **keys)
    chosen = {send(router, row, row * SECOND_NS) for row in range(60)}
    expect(chosen <= {1, 3}, f"replicas 1 and 3 of 5 are open, chosen: {sorted(chosen)}")


def replicas_that_open_are_found(name, keys):
    """A router sends requests to a replica that opened and none to one that closed."""
    view = view_of(3, is_routable=[0, 1, 0])
    router = router_of(name, view, requests(), **keys)
    before = send(router, 0)
    tell(view, is_routable=[0, 0, 1])
    after = send(router, 1)
    expect((before, after) == (1, 2), f"replica 1 alone is open, then replica 2 alone; chosen: {before}, then {after}")


def nothing_is_chosen_when_all_are_closed(name, keys):
    """A router returns -1 (in Python: None) when all replicas are closed."""
    chosen = router_of(name, view_of(3, is_routable=0), requests(), **keys).choose_replica(0, 0)
    expect(chosen == -1, f"chosen: {chosen}")


def equal_seeds_give_equal_choices(name, keys):
    """Two routers with equal seeds make equal choices, for 1, 2 and 70 replicas."""
    for count in (1, 2, 70):
        first, second = ([send(router, row, row * SECOND_NS) for row in range(60)] for router in (
            router_of(name, view_of(count, num_blocks=100), requests(), seed=7, **keys) for _ in range(2)))
        expect(first == second, f"{count} replicas: {first} and {second}")
        expect(set(first) <= set(range(-1, count)), f"{count} replicas, chosen: {sorted(set(first))}")


def asking_for_scores_changes_nothing(name, keys):
    """Scores are finite, of closed replicas -inf; asking changes no choice."""
    asked, silent = (router_of(name, view_of(4, is_routable=[1, 0, 1, 1], **UNEQUAL), requests(), **keys)
                     for _ in range(2))
    for row in range(10):
        scores = asked.scores(row, 0)
        expect(scores[1] == -np.inf and np.isfinite(scores[[0, 2, 3]]).all(), f"scores with replica 1 closed: {scores}")
        choices = asked.choose_replica(row, 0), silent.choose_replica(row, 0)
        expect(choices[0] == choices[1], f"request {row}: {choices[0]} after asking, {choices[1]} without")


def scores_are_fractions(name, keys):
    """A scorer rates open replicas from 0 to 1, and closed ones NaN."""
    scorer = scorer_of(name, view_of(4, is_routable=[1, 0, 1, 1], **UNEQUAL), requests(), **keys)
    for row in range(20):
        scores = scorer.scores(row, row * SECOND_NS)
        rated = scores[[0, 2, 3]]
        expect(bool(np.isnan(scores[1]) and ((rated >= 0) & (rated <= 1)).all()), f"with replica 1 closed: {scores}")
        scorer.note_sent(row, (0, 2, 3)[row % 3], row * SECOND_NS)


def scores_do_not_depend_on_questions(name, keys):
    """A scorer returns equal scores however often it is asked."""
    fields = {field: values if isinstance(values, int) else values[1:] for field, values in UNEQUAL.items()}
    asked, silent = (scorer_of(name, view_of(3, **fields), requests(), **keys) for _ in range(2))
    for row in range(20):
        scores = [each.scores(row, row * SECOND_NS) for each in (asked, asked, silent)]
        expect(all(np.array_equal(scores[0], each, equal_nan=True) for each in scores), f"request {row}: {scores}")
        for each in (asked, silent):
            each.note_sent(row, row % 3, row * SECOND_NS)


ROUTER_RULES = (closed_replicas_get_nothing, replicas_that_open_are_found, nothing_is_chosen_when_all_are_closed,
                equal_seeds_give_equal_choices, asking_for_scores_changes_nothing)
SCORER_RULES = (scores_are_fractions, scores_do_not_depend_on_questions)
