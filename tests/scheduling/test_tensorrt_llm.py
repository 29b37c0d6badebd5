"""`scheduler = "tensorrt_llm"`, by hand; the rules on random traffic: tests/oracle.

Iterations take 1 ms. The first case is that of "Tuning Max Batch Size and Max Num Tokens" of TensorRT-LLM's performance
tuning guide: batches of 4 requests and 12 tokens, prompts of 5.
"""
import pytest

import simulator
from simulator.errors import InputErrors
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.tensorrt_llm import TensorrtLlm, TensorrtLlmParameters
from support.engine import plan_of
from support.every_key import read
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
PRICES = LinearParameters(base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)


def run(prompts, outputs, num_gpu_blocks=100, block_size=1, limits=None, arrivals_ns=None, **parameters):
    workload = plain_workload(arrivals_ns or [0] * len(prompts), prompts, outputs)
    if limits is not None:
        workload.demands["max_tokens"] = limits
    return record(workload, plan_of(
        TensorrtLlmParameters(**parameters), Linear(PRICES), scheduler=TensorrtLlm, num_gpu_blocks=num_gpu_blocks,
        block_size=block_size, max_model_len=100, enable_prefix_caching=False))


def completed_ms(recording):
    return (recording.requests["completed_ns"] / MS).tolist()


def prompts_of(recording):
    return recording.iterations["prefill_tokens"].tolist()


@pytest.mark.parametrize(("more", "expected"), [
    ({}, [10, 10, 0, 0]),                               # two whole prompts, then two more beside two tokens
    ({"enable_chunked_context": True}, [12, 8, 0, 0]),  # the third begins with 2, then its 3 and the fourth
])
def test_the_published_case(more, expected):
    recording = run([5, 5, 5, 5], [3, 3, 3, 3], max_batch_size=4, max_num_tokens=12, **more)

    assert prompts_of(recording) == expected


def test_equal_progress_cuts_all_alike():
    # 12 tokens in blocks of 2: two blocks each, then what is left of prompts of 6; first come: 6, 6, then 6
    cut = {"max_num_tokens": 12, "enable_chunked_context": True, "block_size": 2}
    equal = run([6, 6, 6], [1, 1, 1], context_chunking_policy="EQUAL_PROGRESS", **cut)

    assert (prompts_of(equal), completed_ms(equal)) == ([12, 6], [2, 2, 2])
    assert completed_ms(run([6, 6, 6], [1, 1, 1], **cut)) == [1, 1, 2]


def test_who_may_not_fit_to_its_end_waits_or_is_paused():
    # 10 blocks of 1 token for 4 + 4 each. No eviction: one after the other. Otherwise both begin, and the second is
    # paused when both need a 6th: its 4 + 2 are computed again when the first is done.
    one_by_one = run([4, 4], [4, 4], num_gpu_blocks=10)
    paused = run([4, 4], [4, 4], num_gpu_blocks=10, capacity_scheduler_policy="MAX_UTILIZATION")

    assert completed_ms(one_by_one) == [4, 8]
    assert one_by_one.requests["preemptions"].tolist() == [0, 0]
    assert completed_ms(paused) == [4, 6]
    assert paused.requests["preemptions"].tolist() == [0, 1]


def test_what_is_declared_counts_not_what_comes():
    # of 20 blocks, 4 + 10 are promised to the first, though it stops after 2 tokens
    recording = run([4, 4], [2, 2], num_gpu_blocks=20, limits=[10, 10])

    assert completed_ms(recording) == [2, 4]


@pytest.mark.parametrize("more", [{"capacity_scheduler_policy": "STATIC_BATCH"}, {"batching_type": "STATIC"}])
def test_static_batches_are_done_before_others_begin(more):
    recording = run([4, 4, 4], [1, 3, 2], max_batch_size=2, **more)

    assert completed_ms(recording) == [1, 3, 5]         # in flight, the third would take the place of the first
    assert completed_ms(run([4, 4, 4], [1, 3, 2], max_batch_size=2)) == [1, 3, 3]


@pytest.mark.parametrize(("wait", "expected"), [
    ({}, [5, 5, 4, 0]),
    # one token and prompts of 5 are below 0.9 x 12 = 10.8: the second waits for two batches, then the third is there,
    # and the two go together
    ({"batch_wait_timeout_iters": 2, "batch_wait_max_tokens_ratio": 0.9}, [5, 0, 0, 9, 0]),
    ({"batch_wait_timeout_iters": 1, "batch_wait_max_tokens_ratio": 0.9}, [5, 0, 9, 0]),        # for one batch
    ({"batch_wait_timeout_iters": 9, "batch_wait_max_tokens_ratio": 0.5}, [5, 5, 4, 0]),         # 6 tokens are half
])
def test_prompts_beside_decodes_wait_for_others(wait, expected):
    recording = run([5, 5, 4], [9, 9, 9], max_batch_size=4, max_num_tokens=12, arrivals_ns=[0, 1, MS + 1], **wait)

    assert prompts_of(recording)[:len(expected)] == expected


def test_prompts_without_decodes_do_not_wait():
    wait = {"batch_wait_timeout_iters": 1000, "batch_wait_max_tokens_ratio": 1.0}

    assert completed_ms(run([5, 5], [1, 1], arrivals_ns=[0, 9 * MS], max_num_tokens=12, **wait)) == [1, 10]


@pytest.mark.parametrize(("engine", "message"), [
    ({"enable_chunked_context": True, "max_num_tokens": 8, "block_size": 16},
     r"engine\.max_num_tokens: chunks of contexts are whole blocks: expected at least block_size = 16, found 8"),
    ({"context_chunking_policy": "EQUAL_PROGRESS"},
     r'engine\.context_chunking_policy: goes with enable_chunked_context = true, found "EQUAL_PROGRESS"'),
    ({"batch_wait_timeout_iters": 20}, r"engine\.batch_wait_timeout_iters: no batch waits with "
                                       r"batch_wait_max_tokens_ratio = 0: expected batch_wait_max_tokens_ratio above"),
    ({"batch_wait_max_tokens_ratio": 0.5}, r"engine\.batch_wait_max_tokens_ratio: no batch waits with "
                                           r"batch_wait_timeout_iters = 0")])
def test_what_does_not_go_together_is_refused(engine, message, tmp_path):
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,3,6\n")
    with pytest.raises(InputErrors, match=message):
        simulator.run(read({
            "engine": {"scheduler": "tensorrt_llm", "num_gpu_blocks": 100, "max_model_len": 100} | engine,
            "latency": {"backend": "linear"}, "workload": {"type": "trace", "path": str(tmp_path / "trace.csv")}}))
