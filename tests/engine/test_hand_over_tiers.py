"""Hand-overs between replicas with host memory of their own, by timelines worked out by hand.

An iteration takes 10 ms, a token 1 ms from one replica to another, blocks have 16 tokens; a store takes 1 ms, a load 4.
"""
import numpy as np
import pytest

from simulator.domain import records
from simulator.domain.failures import Failure
from simulator.kv.tiers.fifo_lane import FifoLane
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.settings import LevelSettings, Offloading
from simulator.scheduling.vllm import VllmParameters
from support.hand_over import MS, serve, upkeep
from support.workloads import plain_workload

SYNC = VllmParameters(async_scheduling=False)


def host(store_ms=1, load_ms=4, **settings):
    """Return what makes host memory of 100 chunks of a block."""
    offloading = Offloading(**{"policy": Lru, "chunks": 100} | settings)
    return lambda workload: OffloadingTier(offloading, FifoLane(store_ms * 1e6, 0.0), FifoLane(load_ms * 1e6, 0.0))


def shared(**level):
    """Return a store that all replicas share; a chunk takes 1 ms."""
    return LevelSettings(**{"name": "store", "level": 1, "scope": "cluster", "chunks": 100, "chunk_bytes": 1000.0,
                            "write_bytes_per_s": 1e6, "read_bytes_per_s": 1e6} | level)


def run(workload, *roles, num_blocks=20, tier=None, **given):
    """Return the Outcome; `tier` : of all replicas, or {role: tier}."""
    return serve(workload, roles or ("prefill", "decode"), parameters=SYNC, tier=tier or host(),
                 cache={"num_gpu_blocks": num_blocks, "block_size": 16}, **given)


def sharing(workload, streams):
    """Return the workload; prompts of requests with the same stream, not None, are the same."""
    workload.segments = np.array([
        (records.own_stream(row) if stream is None else records.named_stream(stream), tokens)
        for row, (stream, tokens) in enumerate(zip(streams, workload.requests["prompt_tokens"], strict=True))],
        records.SEGMENT)
    workload.demands["segments_begin"], workload.demands["num_segments"] = np.arange(len(workload)), 1
    return workload


def of_hosts(outcome, name):
    """Return a figure of the host memory of each replica."""
    return [replica.scheduler.tier.rows()[0][name] for replica in outcome.cluster.replicas]


def test_both_replicas_store_a_prompt_and_take_no_longer_for_it():
    # The prefill replica from 10 on, its next step; the decode replica what it got, from 84 on.
    outcome = run(plain_workload(0, 64, 3))

    assert outcome.token_ms[0] == [84, 94, 104]
    assert of_hosts(outcome, "stored_chunks") == [4, 4]
    assert [each.tolist() for each in outcome.run.columns.values()] == [[0], [128]]


def test_outputs_are_stored_where_they_are_generated():
    # The text is of 64 + 33 tokens, of which 96 are computed.
    outcome = run(plain_workload(0, 64, 33), tier=host(offload_prompt_only=False))

    assert of_hosts(outcome, "stored_chunks") == [4, 6]


def test_a_prefill_replica_loads_a_known_prompt_and_the_decode_replica_gets_it_from_there():
    # r1 takes all 19 blocks of both replicas. r2 has the prompt of r0: loaded from 600 to 604, its last token computed
    # until 614. The decode replica has it in its host, too, and yet reads all of it, until 678.
    workload = sharing(plain_workload([0, 200 * MS, 600 * MS], [64, 304, 64], 1), [5, None, 5])
    outcome = run(workload)

    assert outcome.ms("prefill_done_ns", "transfers") == [10, 210, 614]
    assert outcome.ms("end_ns", "transfers") == [74, 514, 678]
    assert outcome.token_ms[2] == [688]
    assert (of_hosts(outcome, "loaded_chunks"), of_hosts(outcome, "stored_chunks")) == ([4, 0], [23, 23])
    assert outcome.requests["cached_tokens"].tolist() == [0, 0, 63]
    assert outcome.run.columns["loaded_tokens"].tolist() == [0, 0, 64]
    assert outcome.legs[["role", "cached_tokens", "external_tokens"]].tolist()[-2:] == [(1, 0, 63), (2, 0, 63)]


def test_a_decode_replica_puts_off_who_asks_for_what_its_host_is_being_given():
    # Stores take 50 ms. r1 has the prompt of r0, its last block comes from the host: prefill from 69 to 79. The decode
    # replica stores that block from 84 to 134. Only then it reads it from the prefill replica, in 16 ms.
    outcome = run(sharing(plain_workload([0, 65 * MS], 64, 3), [5, 5]), tier=host(store_ms=50))

    assert outcome.ms("prefill_done_ns", "transfers") == [10, 79]
    assert outcome.ms("start_ns", "transfers") == [10, 134]
    assert outcome.token_ms == {0: [84, 94, 104], 1: [160, 170, 180]}


def test_a_decode_replica_that_had_room_first_asks_its_host_for_no_prompt():
    # SGLang: r0 and r1 ask at once, when they come; r1 while the prompt that both have is being stored.
    plan = {"order": "destination", "pushes": True, "decode_first": True, "has_first_token": True, "reserved_tokens": 0}
    outcome = run(sharing(plain_workload([0, 76 * MS], 64, 3), [5, 5]), tier=host(store_ms=50), plan=plan)

    assert outcome.ms("scheduled_ns")[1] < 134


def test_a_request_that_is_preempted_loads_from_the_host_of_its_decode_replica():
    # Nine blocks. Both prompts come at 10 + 128 and are computed to the end at 148, when only r0 gets a fifth block:
    # r1 is preempted, and the step waits for the stores of both, 2 ms. r0 takes two of its blocks, and ends 39
    # iterations after 150. Then r1 finds two, loads the two others until 544, and computes its first output.
    outcome = run(plain_workload([0, 0], 64, [40, 4]), num_blocks=10)

    assert outcome.token_ms[0][-1] == 540
    assert outcome.token_ms[1] == [148, 554, 564, 574]
    assert of_hosts(outcome, "loaded_chunks") == [0, 2]
    assert (outcome.hand_over.started, outcome.requests["preemptions"].tolist()) == (2, [0, 1])


def test_what_could_not_be_read_comes_from_a_store_that_both_share():
    # The prefill replica stores its prompt by 11, and the store has it at 15. It dies at 30, while its KV is read. The
    # decode replica reads the prompt from the store until 34, loads it until 38, and computes one token.
    fails = upkeep([Failure(kind="stop", which=0, at_s=0.03, duration_s=1.0)])
    outcomes = [run(plain_workload(0, 64, 3), tier=host(levels=levels), keeps_legs=True, operations=fails,
                    plan={"recomputes": True}) for levels in ((), (shared(),))]

    assert [outcome.token_ms[0][0] for outcome in outcomes] == [40, 48]
    assert outcomes[1].hand_over.failed == 1
    assert [of_hosts(outcome, "loaded_chunks")[1] for outcome in outcomes] == [0, 4]


def test_a_replica_that_fails_loses_its_host():
    # Both at 110, for 20 ms. r1 has the prompt of r0, and it is computed like a new one.
    fails = upkeep([Failure(kind="stop", which=which, at_s=0.11, duration_s=0.02) for which in (0, 1)])
    outcome = run(sharing(plain_workload([0, 200 * MS], 64, 1), [5, 5]), keeps_legs=True, operations=fails)

    assert outcome.ms("prefill_done_ns", "transfers") == [10, 210]
    assert outcome.requests["cached_tokens"].tolist() == [0, 0]
    assert (of_hosts(outcome, "used_chunks"), of_hosts(outcome, "loaded_chunks")) == ([4, 4], [0, 0])


def test_what_one_prefill_replica_computed_another_loads():
    # r1 comes to the second at 100: 4 chunks from the store, 4 ms, another 4 from its host.
    workload = sharing(plain_workload([0, 100 * MS], 64, 1), [5, 5])
    outcome = run(workload, ("prefill", 2), "decode", tier=host(levels=(shared(),)))

    assert outcome.transfers["prefill_replica"].tolist() == [0, 1]
    assert outcome.ms("prefill_done_ns", "transfers") == [10, 118]
    assert of_hosts(outcome, "loaded_chunks") == [0, 4, 0]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_only_one_of_the_two_may_have_a_host(role):
    outcome = run(plain_workload(0, 64, 3), tier={role: host()})

    assert outcome.token_ms[0] == [84, 94, 104]
    assert [each.tolist() for each in outcome.run.columns.values()] == [[0], [64]]
