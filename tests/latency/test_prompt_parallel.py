"""Prefill context parallelism: the slices of a rank, what they save, and what the ranks gather for it."""
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import simulator
from simulator.collective.busbw.model import Busbw
from simulator.domain.layers.indexer import Indexer
from simulator.domain.memory_plan import plan
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.operators.model import Operators
from simulator.latency.overheads.prompt_costs import prompt_gathers
from simulator.latency.overheads.prompts import PromptParallel
from simulator.latency.roofline.model import Roofline, RooflineParameters
from support.operator_profiles import write_tables
from support.small_models import DENSE, LATENT, MIXTURE, NO_RESERVE, NODE, RECURRENT, SLIDING, deploy

ONE_US_A_TOKEN = LinearParameters(base_us=0.0, per_sequence_us=0.0, per_prefill_token_us=1.0, per_context_token_us=0.0)
QUIET = RooflineParameters(
    mfu_prefill=1.0, mfu_decode=1.0, mfu_attention=1.0, bandwidth_efficiency=1.0, kernel_latency_us=0.0,
    attention_latency_us=0.0, collective_latency_us=0.0, link_efficiency=1.0)
SLOW = replace(QUIET, mfu_prefill=1e-4, mfu_decode=1e-4, mfu_attention=1e-4)            # bound by arithmetic
CONFIG = Path(__file__).parents[2] / "configs/prefill_context_parallel.toml"

chunks = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 500)), min_size=1, max_size=5)


def linear(degree):
    return PromptParallel(Linear(ONE_US_A_TOKEN), degree)


def dealt(prefill, degree):
    """Return the (tokens, context) that each rank computes, slice by slice as the page says."""
    found = [[] for _ in range(degree)]
    for tokens, context in prefill:
        size = -(-tokens // (2 * degree))
        slices = [range(i, min(i + size, tokens)) for i in range(0, tokens, size)]
        slices += [range(0)] * (2 * degree - len(slices))
        for rank in range(degree):
            found[rank] += [(len(each), context + each.start) for each in (slices[rank], slices[-1 - rank]) if each]
    return found


def pairs(prefill):
    """Return the (query, key) pairs of causal attention."""
    return sum(tokens * context + tokens * (tokens + 1) // 2 for tokens, context in prefill)


# ---- which slices

@pytest.mark.parametrize(("degree", "prefill", "slices", "rows"), [
    (4, (1000, 0), [(125, 0), (125, 875)], 250),            # all ranks have as many pairs: the first speaks
    (2, (8, 100), [(2, 100), (2, 106)], 4),
    # 2, 2, 2 and 1 tokens: rank 0 has 3 with 2 x 1.5 + 7 = 10 pairs, rank 1 has 4 with 3 + 4 + 5 + 6 = 18
    (2, (7, 0), [(2, 2), (2, 4)], 4),
    (2, (5, 0), [(2, 2), (1, 4)], 3),                       # 2, 2, 1 and none
    (4, (1, 5), [(1, 5)], 1)])                              # one token is one rank's
def test_a_rank_has_two_slices_one_from_each_end(degree, prefill, slices, rows):
    found, padded = linear(degree).rank_batch([prefill])

    assert [each[:2] for each in found] == slices
    assert padded == rows
    assert {each[2] for each in found} == {sum(prefill)}    # all of the same prompt


@given(chunks, st.integers(2, 5))
def test_the_busiest_rank_is_the_one_with_most_pairs_padded_to_most_rows(prefill, degree):
    ranks = dealt(prefill, degree)
    found, rows = linear(degree).rank_batch(prefill)

    assert [each[:2] for each in found] == max(ranks, key=pairs)
    assert rows == max(sum(tokens for tokens, _ in rank) for rank in ranks)
    assert sum(map(pairs, ranks)) == pairs(prefill)         # nothing is computed twice, nothing left out


@given(st.integers(1, 500), st.integers(0, 5000), st.integers(2, 8))
def test_slices_of_equal_size_have_equal_pairs(size, context, degree):
    ranks = dealt([(2 * degree * size, context)], degree)
    assert len({pairs(rank) for rank in ranks}) == 1
    assert pairs(ranks[0]) * degree == pairs([(2 * degree * size, context)])


def test_prompt_tokens_are_divided_and_decodes_are_not():
    priced = Linear(LinearParameters(per_prefill_token_us=20.0, per_decode_token_us=3.0, per_context_token_us=0.1))
    model = PromptParallel(priced, 4)

    assert linear(4).predict([(1000, 0)]) == pytest.approx(250e-6)
    assert model.predict([], [500] * 7) == priced.predict([], [500] * 7)
    # 5000 + 3 x 10 us; 250 and, of slices of 2, 3 rows of prompts, 100 decodes' context of 0.1 us
    assert model.predict([(1000, 0), (9, 0)], [100]) == pytest.approx(
        1e-6 * (5000 + 3 * 10 + (250 + 3) * 20 + 3 + 100 * 0.1))


# ---- roofline

def divided(model, degree, parameters=QUIET, gathers=True, **ways):
    deployment = deploy(model, prefill_context_parallel=degree, **ways)
    return PromptParallel(Roofline(parameters, deployment), degree,
                          prompt_gathers(deployment, 0.0, 1.0) if gathers else ())


def test_arithmetic_of_prompts_is_divided_and_weights_are_read_by_all():
    alone = Roofline(SLOW, deploy(DENSE)).breakdown([(1024, 512)])
    parts = divided(DENSE, 4, SLOW).breakdown([(1024, 512)])
    read = divided(DENSE, 4, replace(QUIET, bandwidth_efficiency=1e-4)).breakdown([(1024, 512)])

    assert parts["dense"] == pytest.approx(alone["dense"] / 4)
    assert parts["prefill_attention"] == pytest.approx(alone["prefill_attention"] / 4)
    assert parts["activations"] == pytest.approx(alone["activations"] / 4)
    # 2 layers x (12,288 + 24,576) weights of 2 bytes, and 5 norms of 64, at 0.1 bytes/ns
    assert read["dense"] == pytest.approx(1e-9 * (2 * (12_288 + 24_576) + 5 * 64) * 2 / 0.1)


def test_keys_and_values_of_others_are_read_too():
    # rank 0 has tokens 0 .. 255 and 768 .. 1023: it reads 256 and 1024 keys, 2 layers x 64 elements x 2 bytes each
    parts = divided(DENSE, 2, replace(QUIET, bandwidth_efficiency=1e-6)).breakdown([(1024, 0)])
    assert parts["prefill_attention"] == pytest.approx(1e-9 * (256 + 1024) * 2 * 64 * 2 / 1e-3)


def test_a_window_is_read_by_each_slice():
    # layer of 100 tokens: slices of 256 read (100 + 256) each; the other layer as above
    parts = divided(SLIDING, 2, replace(QUIET, bandwidth_efficiency=1e-6)).breakdown([(1024, 1000)])
    whole = 2 * 1000 + 768 + 512
    assert parts["prefill_attention"] == pytest.approx(1e-9 * (whole + 2 * 100 + 512) * 64 * 2 / 1e-3)


def test_rows_that_another_rank_has_more_are_computed_too():
    # 9 tokens over 2 ranks, slices of 3, 3, 3 and none: rank 0 has 3 rows, rank 1 has 6 and most pairs; with a second
    # prompt of one token, rank 0's, there are 4 and 6
    model = divided(DENSE, 2, SLOW)
    assert model.rank_batch([(9, 0), (1, 0)])[1] == 6
    # rank 0 has more pairs of a far token, rank 1 more rows
    prefill = [(9, 0), (1, 4000)]
    slices, rows = model.rank_batch(prefill)
    parts = model.breakdown(prefill)
    assert (sum(each[0] for each in slices), rows) == (4, 6)
    assert parts["prompt_padding"] > 0
    assert sum(parts.values()) == pytest.approx(model.predict(prefill))


@pytest.mark.parametrize(("model", "widths"), [
    (DENSE, (2 * 16, 2 * 16)),                              # keys and values of 2 heads
    (LATENT, (32, 8)),                                      # latents and rotated keys
    (replace(LATENT, attention=replace(LATENT.attention, indexer=Indexer(num_heads=2, head_dim=24, top_k=64))),
     (32, 8, 24))])
def test_what_ranks_gather(model, widths):
    found = prompt_gathers(deploy(model, prefill_context_parallel=4), 5.0, 0.5)

    assert [(each.count, each.token_bytes, each.of_decodes) for each in found] == [
        *((2, width * 2, False) for width in widths), (1, 64 * 2, True)]
    # half of 100 bytes/ns between accelerators, over which three quarters of what is gathered go
    assert [each.link_token_ns for each in found] == pytest.approx(
        [width * 2 * 0.75 / 50 for width in (*widths, 64)])
    assert {each.latency_ns for each in found} == {5000.0}


def test_windowed_layers_gather_as_well_and_heads_are_split():
    found = prompt_gathers(deploy(SLIDING, tensor_parallel=2, prefill_context_parallel=2), 0.0, 1.0)
    assert [(each.count, each.token_bytes) for each in found] == [(1, 32)] * 4 + [(1, 128)]


def test_the_exchange_is_of_the_prompt_tokens_of_each_layer_and_of_all_rows_at_the_end():
    model = divided(DENSE, 2)
    # 1000 prompt tokens: 2 layers x (64 + 64) bytes; at the end 2 x (500 + 10) rows of 128; half over 100 bytes/ns
    both = model.breakdown([(1000, 0)], [100] * 10)
    assert both["prompt_exchange"] == pytest.approx(1e-9 * (2 * 128 * 1000 + 128 * 1020) * 0.5 / 100)
    assert sum(both.values()) == pytest.approx(model.predict([(1000, 0)], [100] * 10))
    decodes = model.breakdown([], [100] * 10)
    assert decodes["prompt_exchange"] == pytest.approx(1e-9 * 128 * 20 * 0.5 / 100)


def test_a_collective_model_times_the_exchange():
    deployment = deploy(LATENT, NODE, tensor_parallel=2, prefill_context_parallel=4)     # over both domains of the node
    times = Busbw(Busbw.Parameters(), deployment)
    model = PromptParallel(Linear(ONE_US_A_TOKEN), 4, prompt_gathers(deployment, 0.0, 1.0), times)
    expected = sum(count * times.predict("data", "all_gather", 4 * 250 * size) for count, size in (
        (2, 64), (2, 16), (1, 128)))

    assert expected > 0
    assert model.breakdown([(1000, 0)])["prompt_exchange"] == pytest.approx(expected, rel=1e-6)


# ---- experts

@pytest.mark.parametrize("expert_parallel", [1, 2])
def test_experts_see_the_rows_of_all_ranks(expert_parallel):
    model = divided(MIXTURE, 2, SLOW, expert_parallel=expert_parallel)
    # 6,144 weights of 2 chosen experts a row, on 2 ranks; the prompt once and each decode twice; 1e2 FLOP/ns
    parts = model.breakdown([(400, 0)], [50] * 30)
    assert parts["experts"] == pytest.approx(1e-9 * (400 + 2 * 30) * 2 * 6144 * 2 / 2 / 100)
    # one layer gathers and scatters 460 rows of 128 bytes, half of them over 100 bytes/ns
    assert parts["collectives"] == pytest.approx(1e-9 * 2 * 460 * 128 * 0.5 / 100)
    assert sum(parts.values()) == pytest.approx(model.predict([(400, 0)], [50] * 30))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.lists(st.integers(1, 900), max_size=4), st.integers(2, 4))
def test_ranks_that_divide_a_prompt_take_as_long_as_data_parallel_ones_with_its_slices(size, decodes, degree):
    tokens = 2 * degree * size                              # of a longer prompt, so that no slice samples
    ranks = [[(*each, 9999) for each in rank] for rank in dealt([(tokens, 64)], degree)]
    # 12 experts: over 2, 3 and 4 ranks
    model = replace(MIXTURE, moe=replace(MIXTURE.moe, num_experts=12, intermediate_size=48))
    apart = Roofline(QUIET, deploy(model, data_parallel=degree)).predict_step_ns(
        [(rank, decodes) for rank in ranks], degree)
    together = divided(model, degree, gathers=False).predict([(tokens, 64, 9999)], decodes) * 1e9
    assert together == pytest.approx(apart, abs=1)


def test_uneven_experts_are_those_of_all_ranks():
    zipf = {"engine.experts.popularity.distribution": "zipf", "engine.experts.popularity.s": 1.0}
    parts = simulator.predict(CONFIG, [(4096, 0)], overrides=zipf).breakdown
    assert parts["imbalance"] > 0
    assert parts["dispatch"] > 0


# ---- operators

@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    parameters = Operators.Parameters(path=str(write_tables(folder / "t")), cache_directory=str(folder / "c"))
    return lambda model=DENSE, **ways: Operators(parameters, deploy(model, **ways))


def test_measured_kernels_are_those_of_the_slices(measured):
    alone, model = measured(), PromptParallel(measured(prefill_context_parallel=2), 2)
    # 64 tokens: rank 0 has tokens 0 .. 15 and 48 .. 63; b s^2 ns of 2 prompts, halved: 256 + 4096 - 2304, twice
    parts = model.breakdown([(64, 0)])
    assert parts["prefill_attention"] == pytest.approx(1e-9 * 2 * (256 + 4096 - 2304), rel=1e-3)
    assert parts["qkv"] == alone.breakdown([(32, 0)])["qkv"]
    assert sum(parts.values()) == pytest.approx(model.predict([(64, 0)]))


def test_measured_decodes_are_not_divided(measured):
    alone, model = measured(), PromptParallel(measured(prefill_context_parallel=2), 2)
    assert model.predict([], [100] * 6) == pytest.approx(alone.predict([], [100] * 6))
    assert sum(model.breakdown([], [100] * 6).values()) == pytest.approx(alone.predict([], [100] * 6))


def test_measured_experts_are_looked_up_at_the_rows_of_all_ranks(measured):
    model = PromptParallel(measured(MIXTURE, prefill_context_parallel=2), 2)
    apart = measured(MIXTURE, data_parallel=2)
    rows = model.breakdown([(64, 0)], [100] * 4)
    assert rows["experts"] == apart.breakdown([(64, 0)], [100] * 8)["experts"]


# ---- memory and accelerators

def planned(model, **ways):
    return plan(deploy(model, **ways), 16, 512, 1000, 8, NO_RESERVE)


def test_each_rank_keeps_all_keys_and_values():
    alone, four = planned(DENSE, tensor_parallel=2), planned(DENSE, tensor_parallel=2, prefill_context_parallel=4)
    assert four.num_gpu_blocks == alone.num_gpu_blocks
    assert (alone.num_accelerators, four.num_accelerators) == (2, 8)
    assert four.block_size == alone.block_size


def test_experts_are_spread_over_all_ranks():
    alone, two = planned(MIXTURE), planned(MIXTURE, prefill_context_parallel=2)
    assert alone.weights_bytes - two.weights_bytes == 8 * 6144 * 2 / 2          # half of 8 experts, 16 bit


def test_a_state_that_passes_from_token_to_token_is_refused():
    found = deploy(RECURRENT, prefill_context_parallel=2).parallelism.faults(RECURRENT)
    assert "whose state passes from token to token" in found[0]


def test_expert_ranks_divide_by_experts_of_a_group():
    ways = deploy(MIXTURE, tensor_parallel=2, prefill_context_parallel=2, expert_parallel=3).parallelism
    assert "expert_parallel = 3 does not divide tensor_parallel x data_parallel x prefill_context_parallel = 4" in (
        ways.faults(MIXTURE))


# ---- an experiment

SMALL = {"workload.num_requests": 12, "workload.arrival.rate_per_s": 4.0, "workload.output_tokens.max": 40,
         "workload.output_tokens.mean": 20, "workload.output_tokens.std": 10}


def test_prompts_are_done_sooner():
    one, two = (simulator.run(CONFIG, SMALL | {"topology.prefill_context_parallel": n, "topology.expert_parallel": 1,
                                               "engine.num_gpu_blocks": 20_000}).summary for n in (1, 2))
    assert two["ttft_ms"]["p50"] < 0.7 * one["ttft_ms"]["p50"]


@pytest.mark.parametrize("seed", range(6))
def test_runs_are_the_same_with_fast_forward_and_without(seed):
    rng = np.random.default_rng(seed)
    said = SMALL | {
        "seed": seed, "topology.prefill_context_parallel": int(rng.choice([2, 4])), "topology.expert_parallel": 1,
        "engine.max_num_batched_tokens": int(rng.integers(300, 9000)), "engine.max_num_seqs": int(rng.integers(2, 20)),
        "engine.num_gpu_blocks": int(rng.integers(8000, 20_000)), "workload.prompt_tokens.mean": 3000}
    if seed % 2:
        said |= {"latency.collective.backend": "busbw"}
    if seed % 3 == 0:
        said |= {"topology.replicas": 2}
    on, off = (simulator.run(CONFIG, said | {"engine.fast_forward": each}) for each in (True, False))
    for column in ("first_token_ns", "completed_ns"):
        assert (on.requests[column] == off.requests[column]).all()
    assert on.summary["diagnosis"] == off.summary["diagnosis"]


def test_replicas_on_threads_of_their_own_are_the_same():
    said = SMALL | {"topology.replicas": 3, "cluster.routing.policy": "round_robin", "engine.num_gpu_blocks": 9000}
    one, three = (simulator.run(CONFIG, said, threads=each).requests["completed_ns"] for each in (1, 3))
    assert (one == three).all()


def test_what_is_assumed_is_said():
    said = {"model.name": "llama-3.1-8b", "topology.expert_parallel": 1, "topology.tensor_parallel": 1}
    warnings = simulator.run(CONFIG, SMALL | said).summary["diagnosis"]
    assert any("only for models with latent attention" in each for each in warnings)
    assert any("gathers of the ranks are priced as bytes over the link" in each for each in warnings)
