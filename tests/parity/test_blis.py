"""Recorded runs of BLIS, repeated through the experiment file under `scheduler = "blis"`: equal to the microsecond.

Compared are, of every request that reached a replica, TTFT, E2E latency, mean gap between tokens, time in the gateway
queue, first scheduling, preemptions, instance and when its last token left the engine; how many did not get through, by
cause and class; and the aggregate of the run.

Where several replicas are equally good BLIS draws one. Its draws are repeated (support/blis_routers.py): with others
the mean TTFT of a run of 120 requests can be half as much again, as with any other seed.
"""
from fnmatch import fnmatch

import pytest
import tomli_w

import simulator
from support import blis
from support.blis_experiment import experiment_of
from support.blis_random import GoRandom
from support.blis_results import Results, differences, expected_aggregate, expected_losses, expected_requests

KV_TIERS = "KV blocks in tiers"
POOLS = "pools of prefill and decode replicas"
LEFT_OUT = {    # a pattern of names: why these are not compared
    "13*": KV_TIERS, "31_bb_13_*": KV_TIERS, "32_v071_13_*": KV_TIERS, "33_*": KV_TIERS,
    "14*": POOLS, "32_v071_14_*": POOLS,
    "18_*": "closed-loop sessions: a turn arrives when the one before it is complete",
    "19_*": "LoRA adapters",
    "32_v071_04_*": "v0.7.1 hangs under KV pressure: its horizon ends a livelock",
}
ROUNDED_US = 1e-6               # results are floats of whole microseconds, means of them have six decimals
ROUNDED_MS = 1e-9               # sums in another order

ALL = blis.cases()
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs under {blis.FOLDER}")


def run(case, folder):
    """Return the case as BLIS would report our run of it."""
    experiment = experiment_of(case)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(experiment), encoding="utf-8")
    return Results(simulator.run(file), experiment["latency"]["host"])


def obstacle(case):
    """Return why a case is not run; None if it is."""
    return next((reason for pattern, reason in LEFT_OUT.items() if fnmatch(case.name, pattern)), None)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_request_and_the_aggregate_are_what_blis_recorded(case, tmp_path):
    if obstacle(case):
        pytest.skip(obstacle(case))
    results = run(case, tmp_path)
    requests, aggregate = results.requests(), results.aggregate()

    assert requests.keys() == case.results.keys() - case.held_back
    found = [(name, *each) for name, expected in expected_requests(case).items()
             for each in differences(requests[name], expected, ROUNDED_US)]
    found += [("losses", *each) for each in differences(results.losses(), expected_losses(case), 0)]
    found += [("aggregate", *each) for each in differences(aggregate, expected_aggregate(case), ROUNDED_MS)]
    assert not found, "\n".join([f"{len(found)} differences: of, what, recorded, ours", *map(str, found[:20])])


def test_draws_are_those_of_go():
    random = GoRandom(1)        # what `rand.Seed(1)` is known for

    assert [random.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]
