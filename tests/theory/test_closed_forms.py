"""The engine against batches whose times can be worked out by hand."""
import numpy as np
import pytest

from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

CACHE = {"num_gpu_blocks": 40_000, "block_size": 16, "enable_prefix_caching": False, "max_model_len": 8192}
PRICES = LinearParameters(base_us=5000.0, per_sequence_us=10.0, per_prefill_token_us=20.0, per_decode_token_us=3.0,
                          per_context_token_us=0.5)
BASE, SEQUENCE, PREFILL, DECODE, CONTEXT = 5_000_000, 10_000, 20_000, 3_000, 500      # the same in ns


def serve(workload, fast_forward=True, **parameters):
    return record(workload, VllmParameters(**parameters), latency=Linear(PRICES), fast_forward=fast_forward,
                  details=False, **CACHE)


def decode_ns(batch, prompt, outputs):
    """Return the time in which `batch` sequences with `prompt` tokens get all but the first of their `outputs`.

    Iteration j = 1 .. outputs-1 leaves prompt + j tokens of each sequence in the KV cache.
    """
    steps = outputs - 1
    return (steps * (BASE + batch * (SEQUENCE + DECODE))
            + CONTEXT * batch * (steps * prompt + steps * (steps + 1) // 2))


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize(("batch", "prompt", "outputs"), [(1, 1, 1), (1, 100, 50), (8, 17, 2), (32, 250, 1000)])
def test_identical_requests_at_once_take_the_time_of_their_sums(batch, prompt, outputs, fast_forward):
    requests = serve(plain_workload(np.zeros(batch), prompt, outputs), fast_forward).requests
    first_ns = BASE + batch * SEQUENCE + batch * prompt * PREFILL
    assert set(requests["first_token_ns"]) == {first_ns}
    assert set(requests["completed_ns"]) == {first_ns + decode_ns(batch, prompt, outputs)}


def test_a_chunked_prompt_costs_an_iteration_per_chunk():
    # 1000 tokens in chunks of 256: 4 iterations, each with the constant part.
    requests = serve(plain_workload(0, 1000, 1), max_num_batched_tokens=256).requests
    assert requests["first_token_ns"][0] == 4 * (BASE + SEQUENCE) + 1000 * PREFILL


def test_two_prompts_share_the_budget_in_order_of_arrival():
    # Budget 150, prompts of 100: [100 + 50], then [decode + 50]. The first decodes with 101 tokens in KV.
    requests = serve(plain_workload([0, 0], 100, 2), max_num_batched_tokens=150).requests
    first = BASE + 2 * SEQUENCE + 150 * PREFILL
    second = first + BASE + 2 * SEQUENCE + 50 * PREFILL + DECODE + 101 * CONTEXT
    assert requests["first_token_ns"].tolist() == [first, second]
    assert requests["completed_ns"].tolist() == [second, second + BASE + SEQUENCE + DECODE + 101 * CONTEXT]


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
def test_a_saturated_engine_works_in_full_waves(fast_forward):
    # 40 waves of 64 identical requests: a wave starts the moment the one before it ends.
    waves, batch, prompt, outputs = 40, 64, 50, 80
    recording = serve(plain_workload(np.zeros(waves * batch), prompt, outputs), fast_forward, max_num_seqs=batch)
    wave_ns = BASE + batch * SEQUENCE + batch * prompt * PREFILL + decode_ns(batch, prompt, outputs)
    expected = np.repeat(np.arange(1, waves + 1) * wave_ns, batch)
    assert recording.requests["completed_ns"].tolist() == expected.tolist()
    assert recording.replicas["busy_ns"].tolist() == [waves * wave_ns]


def test_throughput_at_saturation_approaches_that_of_a_full_batch():
    # Outputs of many lengths keep the batch full; with prompts of one token and no price for tokens or context an
    # iteration of 32 sequences takes base + 32 x per sequence, and makes 32 tokens.
    rng = np.random.default_rng(5)
    outputs = rng.integers(1, 400, 3_000)
    prices = LinearParameters(base_us=5000.0, per_sequence_us=10.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    recording = record(plain_workload(np.zeros(3_000), 1, outputs), VllmParameters(max_num_seqs=32),
                       latency=Linear(prices), details=False, **CACHE)
    tokens_per_s = outputs.sum() / (recording.requests["completed_ns"].max() / 1e9)
    assert tokens_per_s == pytest.approx(32 / (0.005 + 32 * 10e-6), rel=0.02)
