"""The table of conflicts: its rows become refusals."""
from types import SimpleNamespace

import pytest

from simulator.config.conflicts import Conflict, Feature, Place, Unread, without

DRAFTS, STAGES = Feature("drafts", "engine.speculative"), Feature("stages", "topology.pipeline_parallel", 1)
MOVES, PRICES = Feature("migration", "cluster.rescheduling.mode", "recompute"), Feature("prices", "prices")


def table(**values):
    return SimpleNamespace(**values)


def place_of(stages=1, speculative=None, mode=None, **more):
    moving = mode and table(mode=mode)
    return Place({"pools": (), "topology": table(pipeline_parallel=stages), "cluster": table(rescheduling=moving),
                  "engine": table(parameters=table(speculative=speculative)), "prices": None} | more)


@pytest.mark.parametrize(("row", "place", "expected"), [
    (Conflict(STAGES, DRAFTS, "no"), place_of(2, table()),
     [(("topology", "pipeline_parallel"), "expected 1 with [engine.speculative], found 2: no")]),
    (Conflict(DRAFTS, STAGES, "no"), place_of(2, table()),
     [(("engine", "speculative"), "expected none with topology.pipeline_parallel = 2: no")]),
    (Conflict(MOVES, STAGES, "no"), place_of(2, mode="live"),
     [(("cluster", "rescheduling", "mode"),
       'expected "recompute" with topology.pipeline_parallel = 2, found "live": no')]),
    (Conflict(STAGES, without(DRAFTS), "no"), place_of(2),
     [(("topology", "pipeline_parallel"), "expected 1 without [engine.speculative], found 2: no")]),
    (Conflict(DRAFTS, without(STAGES), "no"), place_of(1, table()),
     [(("engine", "speculative"), "expected none with topology.pipeline_parallel = 1: no")]),
    (Conflict(STAGES, DRAFTS, lambda place: "" if place.topology else "no"), place_of(2, table()), []),
    (Conflict(STAGES, DRAFTS, "no"), place_of(2), []),
    (Conflict(MOVES, STAGES, "no"), place_of(2, mode="recompute"), []),
    (Conflict(PRICES, STAGES, "no"), place_of(2, prices=Unread), [])])
def test_a_row_refuses_its_pair_and_no_other(row, place, expected):
    assert list(row.faults([place])) == expected
