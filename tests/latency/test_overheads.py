"""What engines add to the time of a batch: CUDA graphs, adapters, masks."""
import numpy as np
import pytest

from simulator.domain.drawn_times import DrawnTime
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.overheads.adapters import Adapters
from simulator.latency.overheads.capture import CudaGraphParameters, sizes_of
from simulator.latency.overheads.graphs import Graphs
from simulator.latency.overheads.launches import Launching
from simulator.latency.overheads.masks import Masks
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_defaults import completed

PER_TOKEN_US = 10.0


def linear(**prices):
    """Return a model of 1 ms and 10 us for each token, decoded or prefilled, and nothing else."""
    given = {"base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": PER_TOKEN_US,
             "per_decode_token_us": PER_TOKEN_US, "per_context_token_us": 0.0}
    return Linear(LinearParameters(**(given | prices)))


def arguments(**given):
    """Return arguments with defaults of a server without a card."""
    return completed(VllmParameters(**given))


def graphs(mode="full_and_piecewise", query_tokens=1, piecewise_us=0.0, eager_us=0.0):
    sizes = sizes_of(arguments(max_num_seqs=256), query_tokens, False)
    return Graphs(linear(), mode, sizes, query_tokens, piecewise_us, Launching(eager_us, eager_us))


def rows(model, prefill=(), decode=(), tokens_per_decode=1):
    """Return the rows that a batch is priced for."""
    return round((model.predict(prefill, decode, tokens_per_decode) * 1e6 - 1000) / PER_TOKEN_US)


def test_vllm_captures_51_sizes_at_512():
    sizes = sizes_of(arguments(max_num_seqs=256), 1, False)
    assert (len(sizes), sizes[:5], sizes[-1]) == (51, [1, 2, 4, 8, 16], 512)


def test_the_newest_hardware_captures_larger_batches():
    assert sizes_of(arguments(max_num_seqs=1024), 1, True)[-1] == 1024


def test_few_sequences_and_a_small_budget_bound_the_sizes():
    assert sizes_of(arguments(max_num_seqs=20), 1, False)[-1] == 40
    assert sizes_of(arguments(max_num_seqs=20, max_num_batched_tokens=29), 1, False)[-2:] == [24, 29]


def test_gpt_oss_has_graphs_up_to_1024_tokens_on_every_card():
    few = arguments(max_num_seqs=1)
    assert sizes_of(few, 1, False, is_gpt_oss=True)[-1] == 1024      # the model's rule beats twice the sequences
    assert sizes_of(few, 1, False)[-1] == 2


def test_a_batch_of_all_sequences_has_a_graph_of_its_own():
    assert 100 in sizes_of(arguments(max_num_seqs=100), 1, False)


def test_older_versions_capture_each_eighth():
    sizes = sizes_of(arguments(max_num_seqs=256, vllm_version="0.10"), 1, False)
    assert sizes[3:] == list(range(8, 513, 8))


@pytest.mark.parametrize(("tokens", "padded"), [
    (3, 4), (5, 8), (17, 24), (250, 256), (257, 272), (512, 512), (513, 513)])
def test_a_batch_takes_the_next_size_up(tokens, padded):
    assert rows(graphs(), decode=[100] * tokens) == padded


def test_chunks_are_padded_in_pieces_and_run_eagerly_beyond_the_largest_graph():
    model = graphs(piecewise_us=500.0)      # the page's example G1
    assert rows(model, decode=[100] * 250) == 256
    assert model.predict([(20, 0)], [100] * 250) == pytest.approx(1e-6 * (1000 + 500 + 272 * PER_TOKEN_US))
    assert rows(model, [(300, 0)], [100] * 250) == 550


def test_drafts_take_graphs_of_whole_sequences():
    assert rows(graphs(query_tokens=4), decode=[100] * 60, tokens_per_decode=4) == 240      # the page's example G2
    assert rows(graphs(query_tokens=3), decode=[100] * 9, tokens_per_decode=3) == 48        # 32 and 40 do not divide


def test_modes_say_which_batches_have_graphs():
    decodes, mixed = {"decode": [100] * 5}, {"prefill": [(5, 0)], "decode": [100] * 5}
    found = {mode: (rows(graphs(mode), **decodes), rows(graphs(mode), **mixed))
             for mode in ("piecewise", "full", "full_decode_only", "full_and_piecewise")}
    assert found == {"piecewise": (8, 16), "full": (8, 16), "full_decode_only": (8, 10), "full_and_piecewise": (8, 16)}


def test_launching_kernels_one_by_one_takes_a_least_time():
    model = graphs(eager_us=20_000.0)
    assert model.predict(decode=[100] * 513) == pytest.approx(0.02)
    assert model.predict([(4000, 0)]) == pytest.approx(1e-6 * (1000 + 4000 * PER_TOKEN_US))
    assert model.predict(decode=[100]) == pytest.approx(1e-6 * (1000 + PER_TOKEN_US))


def test_one_token_of_a_prompt_is_a_decode_to_a_graph():
    model = graphs(piecewise_us=500.0)
    assert model.predict([(1, 31)], [100] * 4) == pytest.approx(1e-6 * (1000 + 8 * PER_TOKEN_US))


def test_sizes_must_ascend():
    with pytest.raises(ValueError, match="ascend"):
        CudaGraphParameters(capture_sizes=(8, 8))


def test_padding_belongs_to_the_breakdown():
    parts = graphs().breakdown(decode=[100] * 5)
    assert parts["graphs"] == pytest.approx(3 * PER_TOKEN_US * 1e-6)
    assert sum(parts.values()) == pytest.approx(graphs().predict(decode=[100] * 5))


def test_a_batch_without_adapters_pays_nothing_for_them():
    assert Adapters(linear(), 1.5, 7.0, 1.0, 1.0).predict(decode=[9] * 4) == linear().predict(decode=[9] * 4)


def masks(count, mask_us=50.0, cpus=16, drafts=0):
    return Masks(linear(), np.full(4, mask_us), cpus, drafts).masks_us(count)


@pytest.mark.parametrize(("count", "drafts", "us"), [(64, 0, 3200.0), (256, 3, 12800.0), (200, 0, 1600.0)])
def test_masks_of_the_page(count, drafts, us):      # example F1
    assert masks(count, drafts=drafts) == pytest.approx(us)


def test_one_mask_more_than_128_goes_to_threads():
    assert masks(128) == pytest.approx(6400.0)
    assert masks(129) == pytest.approx(16 * 50.0 + 50.0)            # nine tasks, eight threads: the last has one mask
    assert masks(129, cpus=4) == pytest.approx(4 * 16 * 50.0 + 50.0)


def test_drawn_masks_are_those_of_the_pool_one_after_the_other():
    times = DrawnTime(distribution="lognormal", median=8.0, mean=292.0).draw(np.random.default_rng(1), 4096)
    model = Masks(linear(), times, 16, 0)
    sums = np.array([model.masks_us(100, context) for context in range(2000)])
    assert len(set(sums.tolist())) > 1000
    assert abs(sums.mean() / (100 * times.mean()) - 1) < 0.1     # neighbouring places share times: some 40 are apart


def test_lognormal_times_have_their_median_and_mean():
    times = DrawnTime(distribution="lognormal", median=540.0, mean=4140.0).draw(np.random.default_rng(2), 400_000)
    assert np.median(times) == pytest.approx(540.0, rel=0.02)       # 1.25 sigma / sqrt(n) of the logarithm is 0.4 %
    assert np.quantile(times, 0.99) == pytest.approx(62_000.0, rel=0.1)     # as published
