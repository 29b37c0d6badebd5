"""Laws of attention of other kinds, of recurrences and towers: coefficients by hand, from the numbers of the file."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.layers.msa import BlockSparseAttention
from simulator.latency.roofline.errors import operator_errors
from simulator.latency.roofline.kind_laws import (
    BY_SHARE,
    ELSEWHERE,
    LEFT_OUT,
    NONE,
    kind_law,
    kind_note,
    kind_of,
    kinds,
)
from simulator.latency.roofline.laws import generation_of, law_notes
from simulator.latency.roofline.model import Roofline
from support.small_models import DENSE, LATENT, RECURRENT, SLIDING, deploy

H100 = load_accelerator("h100-sxm-80gb")
PEAK, BANDWIDTH = (H100.dense_flops_per_s.bfloat16 * 1e-9, H100.memory_bandwidth_bytes_per_s * 1e-9)
CSA = CompressedAttention(
    num_heads=8, head_dim=512, rope_head_dim=64, query_rank=64, output_rank=64, output_groups=1, window=128, ratio=4,
    indexer=Indexer(num_heads=64, head_dim=128, top_k=512))
COMPRESSED = replace(DENSE, attention=CSA, parts={
    "hca": NamedPart(mixer=replace(CSA, ratio=128, indexer=None))}, layer_kinds=(
        LayerParts(layers=(0,), parts=("attention", "mlp")), LayerParts(layers=(1,), parts=("hca", "mlp"))))
KIMI = replace(RECURRENT, linear_attention=KimiDeltaAttention(num_heads=4, head_dim=16, conv_kernel=4))

SPARSE = replace(LATENT, attention=replace(LATENT.attention, indexer=Indexer(num_heads=4, head_dim=16, top_k=64)))
BLOCKS = replace(DENSE, attention=BlockSparseAttention(
    num_heads=8, num_kv_heads=4, head_dim=16, qk_norm="head", index_heads=4, index_head_dim=16, top_k_blocks=2))
KINDS = (LATENT, SPARSE, COMPRESSED, BLOCKS, *(replace(each, attention=LATENT.attention) for each in (KIMI, RECURRENT)))
NAMES = ("latent", "sparse latent", "compressed", "blocks", "kda and latent", "gdn and latent")
# of each generation with laws, of none, and the smallest and largest
CARDS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "l40s", "rtx-5090", "mi300x", "t4", "gb300")


def costs(model, accelerator=H100, efficiency=None, **ways):
    return Roofline(Roofline.Parameters(efficiency=efficiency), deploy(model, accelerator=accelerator, **ways)).costs


def test_unlike_kinds_have_laws_of_their_own():
    found, laws = costs(COMPRESSED), [kind_law("hopper", kind).decode for kind in ("csa", "hca")]

    # scores of a fourth of the tokens; the chosen ones; all of 128; a window of each
    keys, row = 132 / 4, 584
    of_bytes = [keys, row / 128, row, row / 4, row]
    passes = [found.full_attention, *found.other_attention[:-1], found.window_attention]
    kv_ns = sorted(each.context_kv_ns for each in passes)
    expected = sorted(num_bytes / (BANDWIDTH * law.memory_frac) for num_bytes, law in zip(
        of_bytes, (laws[0], laws[1], laws[0], laws[0], laws[1]), strict=True))
    assert kv_ns == pytest.approx(expected)
    assert found.other_attention[-1].decode_floor_ns == pytest.approx(1e3 * sum(law.floor_us for law in laws))


def test_latent_attention_joins_decodes_and_the_rest_of_a_prompt():
    found, law = costs(LATENT, tensor_parallel=2), kind_law("hopper", "latent")

    # 2 layers, 2 of 4 heads: 2 x 2 x (24 + 16) FLOPs a pair; 2 x 2 x (2 x 32 + 8) a latent; latents of 40 elements
    assert found.full_attention.context_flops_ns == pytest.approx(2 * 288 / (PEAK * law.decode.compute_frac))
    assert found.full_attention.context_kv_ns == pytest.approx(2 * 80 / (BANDWIDTH * law.decode.memory_frac))
    assert found.full_attention.pair_ns == pytest.approx(2 * 160 / (PEAK * law.prefill.compute_frac))
    assert found.full_attention.latent_pair_ns == pytest.approx(2 * 288 / (PEAK * law.prefill.compute_frac))
    # queries and outputs of 2 heads of 24 and 16
    beside = found.other_attention[-1]
    assert beside.prefill_query_ns == pytest.approx(2 * law.prefill.passes * 2 * 40 * 2 / BANDWIDTH)
    assert beside.sequence_ns == pytest.approx(2 * law.decode.passes * 2 * 40 * 2 / BANDWIDTH)
    assert (beside.prefill_floor_ns, beside.decode_floor_ns) == pytest.approx(
        (2e3 * law.prefill.floor_us, 2e3 * law.decode.floor_us))


def test_a_prompt_by_hand():
    """40 tokens behind 1,000, and one behind 500, of one layer of compressed attention to all tokens."""
    model = replace(COMPRESSED, layer_kinds=(LayerParts(layers=(0, 1), parts=("hca", "mlp")),))
    law, pair, row = kind_law("hopper", "hca"), 4 * 8 * 512, 584
    seen, window = 1040 + 501, 2 * 128
    others = 40 * 1000 + 40 * 41 / 2 - 1040
    rate = PEAK * law.prefill.compute_frac
    whole = max(seen / 128 * pair / (PEAK * law.decode.compute_frac)
                + (others + law.prefill.tile_tokens * seen) / 128 * pair / rate,
                seen / 128 * row / (BANDWIDTH * law.decode.memory_frac))
    near = max(window * pair / (PEAK * law.decode.compute_frac) + 39 * 128 * pair / rate,
               window * row / (BANDWIDTH * law.decode.memory_frac))
    query = 8 * (512 + 512) * 2 / BANDWIDTH
    beside = (2 * law.decode.passes + 39 * law.prefill.passes) * query + 1e3 * (
        law.decode.floor_us + law.prefill.floor_us)

    found = Roofline(Roofline.Parameters(), deploy(model, accelerator=H100)).breakdown([(40, 1000), (1, 500)], [])

    assert found["prefill_attention"] == pytest.approx(2e-9 * (whole + near + beside))


@pytest.mark.parametrize(("model", "kind"), [(KIMI, "kda"), (RECURRENT, "gated_delta_net")])
def test_recurrences_read_states_and_compute_tokens_at_their_shares(model, kind):
    found, law, part = costs(model), kind_law("hopper", kind), model.linear_attention

    assert found.state_sequence_ns == pytest.approx(2 * part.state_bytes(2) / (BANDWIDTH * law.decode.memory_frac))
    assert found.state_token_ns == 0.0
    assert found.other_attention[-1].prefill_query_ns == pytest.approx(
        part.state_flops_per_token / (PEAK * law.prefill.compute_frac))
    assert found.other_attention[-1].sequence_ns == 0.0


def mixers_ns(priced, prefill=(), decode=()):
    """Return the ns of attention and states of an iteration."""
    found = priced.breakdown(prefill, decode)
    return 1e9 * sum(found[name] for name in ("prefill_attention", "decode_attention", "state"))


@pytest.mark.parametrize("accelerator", CARDS)
@pytest.mark.parametrize("model", KINDS, ids=NAMES)
def test_a_prompt_is_continuous_from_a_decode_on_and_never_falls(model, accelerator):
    """1 to 8,192 new tokens behind 0 to 122,880; the last token behind equal context is a decode."""
    priced = Roofline(Roofline.Parameters(), deploy(model, accelerator=load_accelerator(accelerator)))
    prefixes, news = (0, 1, 127, 1024, 4096, 32_768, 122_880), (1, 2, 3, 15, 16, 17, 128, 512, 2048, 8192)
    ns = np.array([[mixers_ns(priced, [(new, cached)]) for cached in prefixes] for new in news])
    decodes = np.array([[mixers_ns(priced, decode=[new + cached]) for cached in prefixes] for new in news])

    assert ns.min() > 0 and np.isfinite(ns).all()
    assert (ns >= decodes * (1 - 1e-9)).all()
    assert (np.diff(ns, axis=0) >= -1e-9 * ns[1:]).all() and (np.diff(ns, axis=1) >= -1e-9 * ns[:, 1:]).all()
    assert ns[0] == pytest.approx(decodes[0], rel=1e-9)


@pytest.mark.parametrize("model", KINDS, ids=NAMES)
def test_few_tokens_behind_a_long_prefix_stay_near_a_decode(model):
    """A second token adds at most a sixteenth of the floor of prompts, and the work of a query or of its tile."""
    priced = Roofline(Roofline.Parameters(), deploy(model, accelerator=H100))
    one, two = (mixers_ns(priced, [(new, 32_768)]) for new in (1, 2))

    assert one <= two < 3 * one


def test_a_batch_of_prompts_takes_no_less_than_each():
    priced = Roofline(Roofline.Parameters(), deploy(COMPRESSED, accelerator=H100))
    chunks = [(1, 9000), (700, 0), (33, 120_000), (1, 1)]
    whole = mixers_ns(priced, chunks)

    assert whole >= max(mixers_ns(priced, [chunk]) for chunk in chunks)
    assert mixers_ns(priced, [(1, 99), (1, 5000)]) == pytest.approx(mixers_ns(priced, decode=[100, 5001]))


def test_kinds_without_law_and_shares_of_peak_stay(monkeypatch):
    mamba = replace(RECURRENT, linear_attention=Mamba2(num_heads=4, head_dim=16, num_groups=1, state_size=16,
                                                       conv_kernel=4))

    assert kind_law("hopper", kind_of(mamba.linear_attention)) == NONE
    for model in (mamba, DENSE, SLIDING):
        law, share = costs(model), costs(model, efficiency="shares")
        assert law.state_token_ns == share.state_token_ns
        assert law.other_attention == ()
    assert costs(LATENT, efficiency="shares").other_attention == ()


def test_all_laws_beat_one_share_of_peak_on_accelerators_left_out():
    for kind, error in kinds().errors.items():
        for phase in ("prefill", "decode"):
            sizes = getattr(error, phase)
            if sizes and getattr(kind_law("any", kind), phase):
                assert sizes[ELSEWHERE] < sizes[BY_SHARE]
    for kind in ("csa", "hca", "gated_delta_net"):
        error = kinds().errors[kind].decode
        assert error[LEFT_OUT] < error[BY_SHARE]
        assert kind_law("hopper", kind).decode and kind_law("blackwell", kind).decode


def test_notes_name_the_error_of_a_law():
    law, mamba = kind_note(CSA, generation_of(H100)[0]), kind_note(LATENT.attention, "ampere")

    assert f"decodes {kinds().errors['csa'].decode[LEFT_OUT]:.0%}" in law
    assert f"prompts {kinds().errors['latent'].prefill[BY_SHARE]:.0%} by one share of peak" in mamba
    assert law in law_notes(deploy(COMPRESSED, accelerator=H100), "hopper")
    assert "mean errors" not in " ".join(law_notes(deploy(LATENT, accelerator=H100), "shares"))


def test_uncertainty_has_the_errors_of_kinds():
    found = operator_errors(Roofline.Parameters(), deploy(COMPRESSED, accelerator=H100), False)
    assert "csa decode" in found["decode_attention"].inside.how
