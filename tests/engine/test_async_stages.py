"""Async scheduling with pipeline stages: timelines worked out by hand, in milliseconds."""
import pytest

from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

MS = 1_000_000


def serve(requests, layers, *, fast_forward=True, base_ms=10, stops=None, num_gpu_blocks=101, **options):
    """Return {row: [ms of each token]}, and [(scheduled, [(enters, leaves) of each stage])] of each batch.

    requests : (arrival in ms, prompt tokens, output tokens) of each.
    stops : {row: outputs}, of those that stop before max_tokens.
    """
    arrivals_ms, prompts, outputs = zip(*requests, strict=True)
    workload = plain_workload([ms * MS for ms in arrivals_ms], prompts, outputs)
    for row, count in (stops or {}).items():
        workload.outcomes["output_tokens"][row] = count
    latency = Linear(LinearParameters(base_us=base_ms * 1e3, per_sequence_us=0.0, per_prefill_token_us=0.0,
                                      per_context_token_us=0.0))
    latency.set_stages(layers)
    recording = record(
        workload, VllmParameters(async_scheduling=True, **options), latency, fast_forward=fast_forward, block_size=10,
        max_model_len=1000, num_gpu_blocks=num_gpu_blocks)
    tokens_ms = {row: [ns / MS for ns in times] for row, times in recording.token_times.items()}
    steps = [(step["t_ns"] / MS, [(start / MS, end / MS) for start, end in step["stages"]])
             for step in recording.steps if "stages" in step]
    return tokens_ms, steps


pytestmark = pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])


def test_who_comes_together_stays_together_and_waits_for_its_tokens(fast_forward):
    # Two stages of 5 ms. All decode in every second batch, those between are empty: 10 ms a token.
    tokens_ms, steps = serve([(0, 1, 3)] * 8, (1, 1), fast_forward=fast_forward)

    assert set(map(tuple, tokens_ms.values())) == {(10, 20, 30)}
    # The next batch is scheduled at once and enters the first stage when the tokens have left the last one.
    assert steps == [(0, [(0, 5), (5, 10)]), (0, [(10, 15), (15, 20)]), (10, [(20, 25), (25, 30)])]


def test_two_bursts_fill_both_stages(fast_forward):
    # The second burst comes at 5 and is seen at 10, when the first batch is back: it follows the second one, at 15.
    tokens_ms, steps = serve([(0, 1, 3)] * 4 + [(5, 1, 3)] * 4, (1, 1), fast_forward=fast_forward)

    assert set(map(tuple, list(tokens_ms.values())[:4])) == {(10, 20, 30)}
    assert set(map(tuple, list(tokens_ms.values())[4:])) == {(25, 35, 45)}
    assert steps[:5] == [
        (0, [(0, 5), (5, 10)]), (0, [(10, 15), (15, 20)]), (10, [(15, 20), (20, 25)]), (10, [(20, 25), (25, 30)]),
        (20, [(25, 30), (30, 35)])]


def test_the_first_stage_waits_for_tokens_though_it_is_free(fast_forward):
    # Stages of 3 and 7 ms: the first could begin again at 3.
    tokens_ms, steps = serve([(0, 1, 3)], (3, 7), fast_forward=fast_forward)

    assert tokens_ms == {0: [10, 20, 30]}
    assert [stages for _, stages in steps] == [[(0, 3), (3, 10)], [(10, 13), (13, 20)], [(20, 23), (23, 30)]]


def test_chunks_of_a_prompt_follow_each_other_and_one_more_batch_than_stages_is_in_flight(fast_forward):
    # 50 tokens, 10 in each batch: three are scheduled at 0, the others as one comes back each 5 ms. They need no token.
    # The fifth, with the last chunk, brings the first token at 30. The second one has its turn two batches later: the
    # sixth, of nothing, was formed at 20, the seventh at 25.
    tokens_ms, steps = serve([(0, 50, 2)], (1, 1), fast_forward=fast_forward, max_num_batched_tokens=10, max_num_seqs=8)

    assert steps == [
        (0, [(0, 5), (5, 10)]), (0, [(5, 10), (10, 15)]), (0, [(10, 15), (15, 20)]), (10, [(15, 20), (20, 25)]),
        (15, [(20, 25), (25, 30)]), (25, [(30, 35), (35, 40)])]
    assert tokens_ms == {0: [30, 40]}


def test_prompts_that_end_with_their_first_token_keep_nobody_waiting(fast_forward):
    # Stages of 1 and 9 ms, one prompt in each batch: nothing goes back to the first stage, which takes in a third one
    # before the first has left.
    _, steps = serve([(0, 10, 1)] * 3, (1, 9), fast_forward=fast_forward, max_num_batched_tokens=10, max_num_seqs=8)

    assert steps == [(0, [(0, 1), (1, 10)]), (0, [(1, 2), (10, 19)]), (0, [(2, 3), (19, 28)])]


def test_who_stops_early_has_one_turn_in_vain(fast_forward):
    # It stops with its second token at 20; the third batch with it has begun to execute then.
    tokens_ms, steps = serve([(0, 1, 9)], (1, 1), fast_forward=fast_forward, stops={0: 2})

    assert tokens_ms == {0: [10, 20]}
    assert [stages for _, stages in steps] == [[(0, 5), (5, 10)], [(10, 15), (15, 20)], [(20, 25), (25, 30)]]


def test_three_groups_rotate_in_four_stages(fast_forward):
    # Stages of 5 ms, one prompt in each batch. The requests that come at 1 and 2 are seen at 20 and have batches of
    # their own, behind the second one of the first request: a token every 20 ms for each, one place in four is empty.
    tokens_ms, _ = serve([(0, 10, 4), (1, 10, 4), (2, 10, 4)], (1, 1, 1, 1), base_ms=20, fast_forward=fast_forward,
                         max_num_batched_tokens=10, max_num_seqs=8)

    assert tokens_ms == {0: [20, 40, 60, 80], 1: [45, 65, 85, 105], 2: [50, 70, 90, 110]}
