"""Attention in several passes over the context, by hand: compressed, sparse and shared choices of tokens."""
import pytest
from msgspec.structs import replace

from domain.test_kinds_by_hand import GLM_KDA, GLM_LATENT, M3_BLOCKS, M3_PLAIN, STREAMS, glm_5_2, v4
from domain.test_packed_groups import model_of
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.embeddings import PerLayerEmbedding
from simulator.latency.roofline.costs import passes_of, rates, roofline_costs
from simulator.latency.roofline.model import Roofline
from simulator.latency.roofline.parameters import RooflineParameters
from support.small_models import deploy

SHARES = RooflineParameters(
    mfu_prefill=0.5, mfu_decode=0.5, mfu_attention=0.5, bandwidth_efficiency=0.5, kernel_latency_us=0.0,
    attention_latency_us=0.0)
V4 = model_of([v4(0), v4(4), v4(128), v4(4)], v4(4))


def costs(model, **ways):
    deployment = deploy(model, **ways)
    return roofline_costs(deployment, rates(SHARES, deployment))


def seconds(model, prefill=(), decode=()):
    """Return the seconds of attention of prompts and of decodes."""
    found = Roofline(SHARES, deploy(model)).breakdown(prefill=prefill, decode=decode)
    return found["prefill_attention"], found["decode_attention"]


def test_equal_passes_of_layers_of_a_kind_are_one():
    # windows of CSA's layers, and of HCA's with those of the window alone
    assert [(each.layers, each.local.window, each.local.kv_bytes) for each in passes_of(deploy(V4))] == [
        (2, 0, 33), (2, 128, 584), (1, 0, 584 / 128), (2, 2048, 146), (2, 128, 584)]


def test_each_pass_has_its_own_bound():
    # 8 decodes behind 100,000 tokens; 500 bytes and 5e5 FLOPs a ns. Index keys: 33 bytes are 0.066, 4,096 FLOPs 0.008
    # ns a token; windows: 584 bytes are 1.168, 131,072 FLOPs 0.262; a 128th of these all over HCA's context.
    tokens = 8 * 100_000
    by_hand = 2 * 33 * tokens + 584 / 128 * tokens + 4 * 584 * 8 * 128 + 2 * 146 * 8 * 2048

    assert seconds(V4, decode=[100_000] * 8)[1] == pytest.approx(by_hand / 500 * 1e-9)


def test_prompts_of_compressed_attention_by_hand():
    # 1,000 tokens behind 5,000: 1,000 x 5,000 + 1,000 x 1,001 / 2 pairs; windows cap these at 128 and 2,048 a token
    pairs = 1000 * 5000 + 1000 * 1001 / 2
    by_hand = 2 * 4096 * pairs + 1024 * pairs + 4 * 131_072 * 128_000 + 2 * 32_768 * 2_048_000

    assert seconds(V4, prefill=[(1000, 5000)])[0] == pytest.approx(by_hand / 5e5 * 1e-9, rel=1e-3)


def test_a_context_within_all_windows_is_read_once_a_pass():
    # 100 tokens: index keys and best of these, windows, HCA's share
    by_hand = (2 * (33 + 146) + 584 / 128 + 4 * 584) * 100

    assert seconds(V4, decode=[100])[1] == pytest.approx(by_hand / 500 * 1e-9)


def test_blocks_are_scored_in_some_layers_and_read_in_all():
    model = model_of([M3_PLAIN, M3_BLOCKS, M3_BLOCKS], M3_BLOCKS)
    # 4 KV heads x 256 x 2 bytes a token, all in one layer and 2,048 in two, and keys of 256 bytes
    by_hand = 2048 * 50_000 + 2 * (2048 * 2048 + 256 * 50_000)

    assert seconds(model, decode=[50_000])[1] == pytest.approx(by_hand / 500 * 1e-9)


def test_shared_choices_are_made_once():
    model = model_of([glm_5_2(False), glm_5_2(True), glm_5_2(True)], glm_5_2(False))

    assert [(each.layers, each.local.window) for each in passes_of(deploy(model))] == [(1, 0), (3, 2048)]


def test_ranks_share_heads_and_read_all_of_a_compressed_context():
    one, eight = (costs(V4, tensor_parallel=ranks) for ranks in (1, 8))

    for whole, local in zip((one.full_attention, *one.other_attention), (eight.full_attention, *eight.other_attention),
                            strict=True):
        assert local.context_kv_ns == whole.context_kv_ns
    # HCA's heads are split, the indexer's are not
    assert eight.full_attention.context_flops_ns == one.full_attention.context_flops_ns
    assert eight.other_attention[0].context_flops_ns == pytest.approx(one.other_attention[0].context_flops_ns / 8)


def test_each_kind_says_what_is_behind_its_prices():
    model = model_of([GLM_LATENT, GLM_KDA], GLM_LATENT, GLM_KDA)
    model = replace(model, parts=model.parts | {"streams": NamedPart(around=STREAMS)}, embeddings=(
        PerLayerEmbedding(vocab_size=100, width=8, num_layers=2),), layer_kinds=tuple(
            LayerParts(layers=kind.layers, parts=(*kind.parts, "streams")) for kind in model.layer_kinds))
    told = Roofline(RooflineParameters(), deploy(model)).warnings()

    for title in ("Kimi delta attention has laws of tables of single operators, mean errors on accelerators left out",
                  "hyper-connections take the time of the bytes that they move; no measurement",
                  "the embedding for each layer is left out of the price"):
        assert any(note.startswith(f"roofline: {title}") for note in told), title


def test_factors_act_on_all_passes():
    plain = Roofline(SHARES, deploy(V4))
    slow = Roofline(SHARES, deploy(V4), factors={"decode_attention": 2.0, "prefill_attention": 3.0})

    for name, factor in (("decode_attention", 2), ("prefill_attention", 3)):
        batch = {"prefill": [(100, 5000)], "decode": [9000]}
        assert slow.breakdown(**batch)[name] == pytest.approx(factor * plain.breakdown(**batch)[name])
