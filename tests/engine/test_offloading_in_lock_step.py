"""KV offloaded to host memory by ranks in lock step: iterations of 10 ms, dummies too, blocks of 16 tokens.

Requests go to the two ranks in turn: those with even numbers to rank 0.
"""
from random import Random

import pytest

from simulator.domain import records
from simulator.domain.failures import Failure
from support import engine, upkeep
from support.lock_step import RANKS_AND_REPLICAS, assert_alike, with_long_answers
from support.offloading import MS, copies, ms, own, scenario, shared
from support.random_scenarios import offloaded, random_description
from support.scenario import load

RANKS = {"ranks": 2, "replicas": 2}


def test_all_ranks_wait_for_the_store_of_a_rank_that_gives_its_blocks_away():
    # The store of r0 runs from 10 to 60. r2 needs its blocks at 30: rank 0 waits until 60, and r1 of rank 1 with it.
    recording = engine.run(scenario([(0, own(96), 1), (0, own(16), 6), (25, own(96), 1)], store_ms=50), **RANKS)

    assert [time / MS for time in recording.token_times[1]] == [10, 20, 30, 70, 80, 90]
    assert ms(recording, "completed_ns") == [10, 90, 70]


@pytest.mark.parametrize(("load_ms", "scheduled_ms"), [(1, 80), (15, 90)])
def test_a_rank_without_tokens_loads_before_its_dummy_and_looks_once_a_step(load_ms, scheduled_ms):
    # r2 takes r0's blocks at 30. At 60 rank 0 loads two of them for r4, while rank 1 decodes: not behind that batch. It
    # has no tokens at 70 either, but sees the end of a load by then, or at 80; one step later r4 is scheduled.
    requests = [(0, shared("a", 48), 1), (0, own(5), 30), (25, own(144), 1), (25, own(5), 1), (55, shared("a", 48), 1)]
    recording = engine.run(scenario(requests, load_ms=load_ms), **RANKS)

    assert copies(recording, "loads") == [(4, [1, 2])]
    assert ms(recording, "scheduled_ns") == [0, 0, 30, 30, scheduled_ms]
    assert ms(recording, "completed_ns")[4] == scheduled_ms + 10


def test_a_rank_with_tokens_loads_behind_the_common_step():
    # r4 takes the last block of r0 at 30, and decodes. The load of r6 begins behind the step from 60 to 70: the step
    # from 70 does not see its end at 71, that from 80 does, and r6 is scheduled at 90.
    requests = [(0, shared("a", 48), 1), (0, own(5), 30), (25, own(128), 1), (25, own(5), 1), (25, own(5), 30),
                (55, own(32), 1), (55, shared("a", 48), 1)]
    recording = engine.run(scenario(requests, load_ms=1, num_blocks=12), **RANKS)

    assert copies(recording, "loads") == [(6, [2])]
    assert ms(recording, "scheduled_ns") == [0, 0, 30, 30, 30, 60, 90]


def test_the_store_of_a_request_that_ends_a_wave_begins_while_the_ranks_sleep():
    # r0 ends at 10, and all ranks sleep. Its store begins at once, and ends at 11, when rank 0 looks.
    recording = engine.run(scenario([(0, own(48), 1), (0, own(5), 1)]), **RANKS)
    acts = [(step["t_ns"] // MS, step["copies"]["done"]) for step in recording.steps if step["copies"]["done"]]

    assert len(recording.lock_steps[0].log) == 1
    assert acts == [(11, [0])]


def test_each_rank_finds_its_own_chunks_alone():
    # r2 and r4 of rank 0 clear the KV cache of its rank; r3 of rank 1 has the text of r0, and computes it.
    requests = [(0, shared("a", 48), 1), (0, own(5), 1), (30, own(144), 1), (60, shared("a", 48), 1)]
    recording = engine.run(scenario(requests), **RANKS)

    assert copies(recording, "loads") == []
    assert recording.requests["cached_tokens"].tolist() == [0, 0, 0, 0]


def test_hosts_of_ranks_that_stop_are_lost():
    requests = [(0, shared("a", 48), 1), (0, own(5), 1), (30, own(144), 1), (30, own(5), 1), (100, shared("a", 48), 1)]
    stop = Failure(kind="stop", at_s=0.08, duration_s=0.01, which=0)
    outcomes = [upkeep.run(scenario(requests), failures=failures, **RANKS) for failures in ([], [stop])]

    assert [outcome.legs["external_tokens"].tolist()[4] for outcome in outcomes] == [31, 0]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(60))
def test_taking_iterations_in_bulk_changes_nothing(seed, is_async):
    description = offloaded(random_description(seed), Random(seed))
    description["options"]["async_scheduling"] = is_async
    ranks, replicas = RANKS_AND_REPLICAS[seed % 3]
    case = with_long_answers(description)
    fast, slow, full = (engine.run(case, ranks=ranks, replicas=replicas, fast_forward=bulk, details=details)
                        for bulk, details in ((True, False), (False, False), (False, True)))

    assert_alike(fast, full)
    assert_alike(slow, full)


def _of_rank(request, rank):
    """Return the request of a rank, with names of requests and texts of its own."""
    prompt = [[kind, name if kind == "uniq" else f"{name}.{rank}", *rest] for kind, name, *rest in request["prompt"]]
    return request | {"id": f"{request['id']}.{rank}", "prompt": prompt}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(60))
def test_ranks_with_the_same_requests_decide_like_one_engine_as_long_as_none_is_without_tokens(seed, is_async):
    """A request that decodes all the time lets no batch be empty, and no step be a dummy."""
    description = offloaded(random_description(seed), Random(seed))
    options = description["options"]
    block = options.get("block_size", 16)
    options |= {"async_scheduling": is_async, "max_model_len": max(options["max_model_len"], 1000),
                "num_blocks": options["num_blocks"] + -(-900 // block), "policy": "fcfs"}
    options["max_num_seqs"] = options.get("max_num_seqs", 8) + 1
    steady = {"id": "steady", "arrival": 0, "output_len": 800, "prompt": [["uniq", 5]]}
    requests = [steady, *sorted(description["requests"], key=lambda request: request["arrival"])]
    description["requests"] = requests
    alone = engine.run(load(description), details=False)
    description["requests"] = [_of_rank(request, rank) for request in requests for rank in (0, 1)]
    ranks = engine.run(load(description), details=False, **RANKS)
    is_before = alone.requests["completed_ns"] < alone.requests["completed_ns"][0]

    assert is_before.any()
    assert (alone.requests["status"][is_before] >= records.COMPLETED).all()
    for name in ("scheduled_ns", "first_token_ns", "completed_ns", "cached_tokens", "preemptions"):
        for rank in (0, 1):
            assert (ranks.requests[name][rank::2][is_before] == alone.requests[name][is_before]).all(), name
