"""Vidur's replica schedulers by hand: an iteration takes 1 ms and blocks hold 4 tokens, unless a test says otherwise.

Recorded runs of Vidur itself are in tests/parity/test_vidur.py.
"""
import pytest

from simulator.domain import records
from simulator.latency.linear import Linear
from simulator.registry import load
from support.engine import plan_of
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
PRICES = {"base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
WITH_WATERMARK = ("sarathi", "vllm_v0")


def play(scheduler, workload, *, num_blocks=100, block_size=4, max_model_len=100, stages=None, **parameters):
    """Return (recording, what each step scheduled)."""
    latency, scheduler = Linear(Linear.Parameters(**PRICES)), load("scheduler", scheduler)
    latency.set_host(0.0, 1.0)
    if stages:
        latency.set_stages(stages)
    recording = record(workload, plan_of(
        scheduler.Parameters(**parameters), latency, scheduler=scheduler, block_size=block_size,
        num_gpu_blocks=num_blocks, max_model_len=max_model_len, enable_prefix_caching=False))
    return recording, [dict(step["scheduled"]) for step in recording.steps if step["scheduled"]]


def test_sarathi_fills_up_decodes_with_chunks():
    # 8 tokens a batch. Row 0 leaves 2 for row 1; then its decode leaves 7 of the 8 that row 1 still needs.
    _, batches = play("sarathi", plain_workload([0, 0], [6, 10], [4, 2]), chunk_size=8)

    assert batches == [{0: 6, 1: 2}, {0: 1, 1: 7}, {0: 1, 1: 1}, {0: 1, 1: 1}]


def test_sarathi_never_puts_off_decodes():
    # Two decode though chunk_size is 1: nothing is left for row 2 until both are complete.
    _, batches = play("sarathi", plain_workload([0, 0, 5 * MS], [1, 1, 2], [9, 6, 1]), chunk_size=1)

    assert batches == [{0: 1}, {0: 1}] + [{0: 1}] * 7 + [{1: 1}] * 6 + [{2: 1}] * 2


def test_vllm_v0_computes_prompts_before_decodes():
    # Row 1 comes during the first batch: its prompt goes first, and row 0 waits.
    _, batches = play("vllm_v0", plain_workload([0, MS // 2], [6, 5], [3, 2]))

    assert batches == [{0: 6}, {1: 5}, {0: 1, 1: 1}, {0: 1}]


def test_vllm_v0_counts_prompts_as_long_as_the_longest():
    # 3 x 10 tokens are more than 25, though 10 + 2 + 2 are not.
    _, batches = play("vllm_v0", plain_workload([0, 0, 0], [10, 2, 2], [1, 1, 1]), max_tokens_in_batch=25)

    assert batches == [{0: 10, 1: 2}, {2: 2}]


@pytest.mark.parametrize("scheduler", WITH_WATERMARK)
def test_a_watermark_keeps_blocks_free_while_anything_runs(scheduler):
    # 10 blocks of 4, half of them stay free: the first takes 8 all the same, the second only when that is gone.
    recording, batches = play(scheduler, plain_workload([0, 0], [30, 4], [2, 1]), num_blocks=10,
                              watermark_blocks_fraction=0.5)

    assert batches == [{0: 30}, {0: 1}, {1: 4}]
    assert (recording.requests["status"] == records.COMPLETED).all()


@pytest.mark.parametrize(("scheduler", "batches"), [
    ("sarathi", [{0: 6, 1: 6}, {0: 1, 1: 7}, {0: 1, 1: 8}]),                # it is admitted again in the same batch
    ("vllm_v0", [{0: 6, 1: 6}, {0: 1}, {1: 7}, {0: 1}, {1: 8}])])
def test_who_goes_on_needs_a_free_block_and_the_last_restarts(scheduler, batches):
    # 4 blocks of 4, two each: none is free, though nobody needs one. So row 1 restarts, with its output in its prompt,
    # and once more when row 0 has its third token.
    recording, found = play(scheduler, plain_workload([0, 0], [6, 6], [3, 3]), num_blocks=4,
                            watermark_blocks_fraction=0.0)

    assert found == batches
    assert recording.requests["preemptions"].tolist() == [0, 2]


def test_orca_takes_blocks_for_the_longest_text():
    # 40 tokens at most are 10 of 25 blocks: two at a time, the third when the first is complete.
    _, batches = play("orca", plain_workload([0, 0, 0], [4, 4, 4], [2, 3, 1]), num_blocks=25, max_model_len=40)

    assert batches == [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1, 2: 4}]


def test_orca_takes_blocks_for_what_clients_allow():
    # 4 + 4 tokens at most are 2 blocks of 25: all at once.
    _, batches = play("orca", plain_workload([0, 0, 0], [4, 4, 4], [2, 3, 1]), num_blocks=25, max_model_len=40,
                      reservation="max_tokens")

    assert batches == [{0: 4, 1: 4, 2: 4}, {0: 1, 1: 1}, {1: 1}]


def test_a_buddy_allocator_gives_room_for_a_power_of_two():
    # 4 + 5 tokens are 3 blocks of 4; a buddy of 16 is 4: three texts in 11 blocks, or two.
    for allocator, first in (("blocks", {0: 4, 1: 4, 2: 4}), ("buddy", {0: 4, 1: 4})):
        _, batches = play("orca", plain_workload([0, 0, 0], [4, 4, 4], [5, 5, 5]), num_blocks=11, max_model_len=40,
                          reservation="max_tokens", allocator=allocator)

        assert batches[0] == first


def test_a_text_of_a_power_of_two_takes_no_more_of_a_buddy_allocator():
    _, batches = play("orca", plain_workload([0, 0], [4, 4], [4, 4]), num_blocks=4, max_model_len=40,
                      reservation="max_tokens", allocator="buddy")

    assert batches[0] == {0: 4, 1: 4}


def outgrown():
    workload = plain_workload([0, 0], [4, 4], [6, 6])
    workload.demands["expected_tokens"] = 1
    return workload


@pytest.mark.parametrize(("scheduler", "num_blocks", "batches", "preemptions"), [
    # 4 + 1 tokens are 2 blocks each. With the ninth token row 0 takes the fifth block; row 1 has none, restarts, and is
    # computed again, with its 5 outputs.
    ("orca", 5, [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {0: 1}, {1: 9}], [0, 1]),
    ("faster_transformer", 5, [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {0: 1}, {1: 9}], [0, 1]),
    # With another block both have room.
    ("orca", 6, [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 5], [0, 0]),
    # Row 0 takes the block of row 1, the last one.
    ("orca", 4, [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {0: 1}, {1: 9}], [0, 1])])
def test_who_outgrows_what_was_foretold_takes_blocks_until_the_last_restarts(
        scheduler, num_blocks, batches, preemptions):
    recording, found = play(scheduler, outgrown(), num_blocks=num_blocks, reservation="expected_tokens")

    assert found == batches
    assert recording.requests["preemptions"].tolist() == preemptions
    assert (recording.requests["status"] == records.COMPLETED).all()


def test_orca_takes_blocks_for_what_is_foretold():
    # 4 + 2 tokens are 2 of 5 blocks, 4 + 12 would be 4: two at a time; of whom nothing is foretold, what is allowed.
    for expected, first in ((2, {0: 4, 1: 4}), (-1, {0: 4})):
        workload = plain_workload([0, 0], [4, 4], [2, 2])
        workload.demands["max_tokens"], workload.demands["expected_tokens"] = 12, expected
        _, batches = play("orca", workload, num_blocks=5, reservation="expected_tokens")

        assert batches[0] == first


def test_no_more_is_taken_for_what_is_foretold_than_clients_allow():
    workload = plain_workload([0, 0], [4, 4], [2, 2])
    workload.demands["expected_tokens"] = 50
    _, batches = play("orca", workload, num_blocks=4, reservation="expected_tokens")

    assert batches == [{0: 4, 1: 4}, {0: 1, 1: 1}]


def test_nobody_joins_a_batch_of_faster_transformer():
    _, batches = play("faster_transformer", plain_workload([0, 0, 0], [4, 4, 4], [1, 3, 1]), batch_size_cap=2)

    assert batches == [{0: 4, 1: 4}, {1: 1}, {1: 1}, {2: 4}]


def foretold(expected):
    workload = plain_workload([0, MS // 2], [10, 10], [8, 8])
    workload.demands["expected_tokens"] = expected
    return workload


@pytest.mark.parametrize(("expected", "batches"), [
    # Blocks of one token. After the third batch row 0 will have 13 tokens, and 8 - 3 - 1 = 4 to come; row 1, computed
    # first, 11, and 6: max(6 + 11, 4 x 2 + 24) = 32 fit into 33.
    (8, [{0: 10}, {0: 1}, {0: 1}, {1: 10}]),
    # Nobody knows: what the client allows, 8, too.
    (-1, [{0: 10}, {0: 1}, {0: 1}, {1: 10}])])
def test_lightllm_looks_after_some_batches_and_ahead(expected, batches):
    _, found = play("lightllm", foretold(expected), num_blocks=33, block_size=1, max_waiting_iters=2)

    assert found[:4] == batches


def test_lightllm_waits_for_room_at_the_peak():
    # 32 would not be below 32: row 1 is looked at again after two batches more, with 15 tokens and 2 to come of row 0:
    # max(6 + 11, 2 x 2 + 26) = 30.
    _, found = play("lightllm", foretold(8), num_blocks=32, block_size=1, max_waiting_iters=2)

    assert found[:6] == [{0: 10}, {0: 1}, {0: 1}, {0: 1}, {0: 1}, {1: 10}]


@pytest.mark.parametrize("scheduler", ["sarathi", "vllm_v0", "orca", "faster_transformer"])
def test_with_stages_who_comes_is_looked_at_at_once(scheduler):
    # Two stages of half a millisecond. Row 1 comes while the first one is at work on row 0, and follows it there.
    recording, _ = play(scheduler, plain_workload([0, MS // 4], [4, 4], [1, 1]), stages=[1, 1])

    assert [step["stages"][0] for step in recording.steps if step["scheduled"]] == [(0, MS // 2), (MS // 2, MS)]
    assert recording.requests["scheduled_ns"].tolist() == [0, MS // 4]
