"""Decode context parallelism: the share of a rank, what it saves, and what the ranks exchange for it."""
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import simulator
from simulator.collective.busbw.model import Busbw
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.overheads.context import ContextParallel
from simulator.latency.overheads.context_costs import context_exchanges
from simulator.latency.roofline.model import Roofline, RooflineParameters
from support.small_models import DENSE, LATENT, NODE, deploy

ONE_US_A_TOKEN = LinearParameters(base_us=0.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=1.0)
QUIET = RooflineParameters(
    mfu_prefill=1.0, mfu_decode=1.0, mfu_attention=1.0, bandwidth_efficiency=1.0, kernel_latency_us=0.0,
    attention_latency_us=0.0, collective_latency_us=0.0, link_efficiency=1.0)
ONE_HEAD = replace(DENSE, attention=replace(DENSE.attention, num_kv_heads=1))


def linear(degree, interleave=1):
    return ContextParallel(Linear(ONE_US_A_TOKEN), degree, interleave)


def shares(tokens, degree, interleave):
    """Return the tokens on each rank, dealt out one by one."""
    found = [0] * degree
    for token in range(tokens):
        found[token // interleave % degree] += 1
    return found


def test_the_step_follows_the_largest_share():
    assert shares(1000, 4, 1) == [250] * 4              # the page's example CP1
    assert shares(1000, 4, 64) == [256, 256, 256, 232]
    assert linear(4).predict(decode=[1000]) == pytest.approx(250e-6)
    assert linear(4, 64).predict(decode=[1000]) == pytest.approx(256e-6)


@given(st.integers(1, 3000), st.integers(2, 9), st.sampled_from([1, 2, 16, 64]))
def test_the_share_of_one_sequence_is_that_of_the_fullest_rank(tokens, degree, interleave):
    assert linear(degree, interleave).share(tokens) == max(shares(tokens, degree, interleave))


@given(st.lists(st.integers(1, 600), min_size=2, max_size=6), st.integers(2, 5), st.sampled_from([1, 4, 16]))
def test_the_share_of_a_batch_is_as_near_as_is_said(contexts, degree, interleave):
    fullest = max(map(sum, zip(*(shares(each, degree, interleave) for each in contexts), strict=True)))
    said = linear(degree, interleave).share(sum(contexts), len(contexts))
    assert abs(said - fullest) <= len(contexts) * interleave * (degree - 1) / (2 * degree) + len(contexts)


@given(st.integers(1, 500), st.integers(1, 20), st.integers(1, 100))
def test_more_context_or_sequences_never_have_a_smaller_share(tokens, sequences, more):
    model, tokens = linear(4, 16), tokens + sequences
    assert model.share(tokens + more, sequences) >= model.share(tokens, sequences)
    assert model.share(tokens + more, sequences + 1) >= model.share(tokens, sequences)


def test_prompts_attend_as_without_it():
    alone = Linear(LinearParameters(per_prefill_token_us=20.0))
    assert ContextParallel(alone, 4).predict([(100, 50)]) == alone.predict([(100, 50)])


# ---- roofline

def test_prompts_of_one_new_token_each_are_decodes():
    latent = shared(LATENT, 4)

    # Whether their tokens come from a cache or were decoded: the same context is shared, the same is exchanged
    for cached in ([16_383], [16_383, 99]):
        one_more = [(1, context) for context in cached]
        assert latent.predict(one_more, [500]) == latent.predict(decode=[context + 1 for context in cached] + [500])
        assert sum(latent.breakdown(one_more).values()) == pytest.approx(latent.predict(one_more))
    assert latent.predict([(2, 16_383)]) > 1.1 * latent.predict([(1, 16_383)])


def shared(model, degree, tensor_parallel=4, backend="ag_rs", **ways):
    deployment = deploy(model, tensor_parallel=tensor_parallel, decode_context_parallel=degree, **ways)
    exchanges = context_exchanges(deployment, backend, 0.0, 1.0) if degree > 1 else ()
    return ContextParallel(Roofline(QUIET, deployment), degree, 1, exchanges) if degree > 1 else Roofline(
        QUIET, deployment)


def attention_us(model, contexts):
    return model.breakdown(decode=contexts)["decode_attention"] * 1e6


def test_reading_kv_is_shared():
    # 2 layers x (40 latent elements) x 2 bytes of 16,384 tokens: 2.62 MB at 1000 bytes/ns, a quarter on each rank
    assert attention_us(shared(LATENT, 1), [16_384]) == pytest.approx(2.62144)
    assert attention_us(shared(LATENT, 4), [16_384]) == pytest.approx(2.62144 / 4)


def test_arithmetic_is_not_shared_since_each_rank_has_the_heads_of_all():
    slow = replace(QUIET, mfu_attention=1e-4)           # bound by it
    one, four = (deploy(LATENT, tensor_parallel=4, decode_context_parallel=n) for n in (1, 4))
    alone = Roofline(slow, one).breakdown(decode=[16_384])["decode_attention"]
    together = ContextParallel(Roofline(slow, four), 4).breakdown(decode=[16_384])["decode_attention"]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize(("model", "backend", "elements"), [
    (LATENT, "ag_rs", [4 * 40 * 2, 4 * 4 * 4, 4 * 32 * 2, 40 * 2]),     # queries, logarithms, outputs; context
    (LATENT, "a2a", [4 * 40 * 2, 4 * (32 * 2 + 4), 40 * 2]),
    (ONE_HEAD, "ag_rs", [4 * 16 * 2, 4 * 4 * 4, 4 * 16 * 2]),
    (ONE_HEAD, "a2a", [4 * 16 * 2, 4 * (16 * 2 + 4)])])
def test_what_ranks_exchange(model, backend, elements):
    found = context_exchanges(deploy(model, tensor_parallel=4, decode_context_parallel=4), backend, 0.0, 1.0)
    assert [each.token_bytes for each in found] == elements
    # 100 bytes/ns between accelerators, of which each sends three quarters
    assert [each.link_token_ns for each in found] == pytest.approx([size * 0.75 / 100 for size in elements])


def test_the_exchange_is_of_each_token_and_layer():
    model = shared(LATENT, 4)
    parts = model.breakdown(decode=[4096] * 10)
    assert parts["context_exchange"] == pytest.approx(1e-9 * 2 * 10 * (320 + 64 + 256) * 0.75 / 100)
    assert sum(parts.values()) == pytest.approx(model.predict(decode=[4096] * 10))


def test_prompts_of_latents_gather_their_context_alone():
    parts = shared(LATENT, 4).breakdown([(100, 1000)])
    assert parts["context_exchange"] == pytest.approx(1e-9 * 2 * 1000 * 80 * 0.75 / 100)
    assert "context_exchange" not in shared(LATENT, 4).breakdown([(100, 0)])


def test_a_collective_model_times_the_exchange():
    deployment = deploy(LATENT, NODE, tensor_parallel=4, decode_context_parallel=4)
    times = Busbw(Busbw.Parameters(), deployment)
    exchanges = context_exchanges(deployment, "a2a", 0.0, 1.0)
    model = ContextParallel(Linear(ONE_US_A_TOKEN), 4, 1, exchanges, collective=times)
    expected = 2 * sum(times.predict("tensor", kind, 10 * size) for kind, size in (
        ("all_gather", 320), ("all_to_all", 4 * (64 + 4))))
    assert model.breakdown(decode=[4000] * 10)["context_exchange"] == pytest.approx(expected, rel=1e-6)


def test_stages_add_up_to_an_iteration():
    deployment = deploy(LATENT, tensor_parallel=4, decode_context_parallel=4, pipeline_parallel=2)
    inner = Roofline(QUIET, deployment)
    inner.set_stages([1, 1])
    model = ContextParallel(inner, 4, 1, context_exchanges(deployment, "ag_rs", 0.0, 1.0), [1, 1])
    stages = model.predict_stages_ns(decode=[4096] * 10)
    assert len(stages) == 2
    assert sum(stages) == pytest.approx(model.predict(decode=[4096] * 10) * 1e9, abs=1)


# ---- an experiment

@pytest.mark.parametrize("said", [
    {}, {"topology.cp_kv_cache_interleave_size": 64}, {"topology.pipeline_parallel": 2},
    {"topology.data_parallel": 2, "topology.tensor_parallel": 4, "topology.decode_context_parallel": 4}])
def test_runs_are_the_same_with_fast_forward_and_without(said):
    small = {"workload.num_requests": 12, "workload.arrival.rate_per_s": 5.0, "workload.output_tokens.max": 40,
             "workload.output_tokens.mean": 20, "workload.output_tokens.std": 10}
    path = Path(__file__).parents[2] / "configs/context_parallel.toml"
    runs = [simulator.run(path, small | said | {"engine.fast_forward": each}).summary for each in (True, False)]
    assert runs[0]["e2el_ms"] == runs[1]["e2el_ms"]
