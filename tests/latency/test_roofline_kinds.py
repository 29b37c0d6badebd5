"""Laws of attention of other kinds, of recurrences and towers: coefficients by hand, from the numbers of the file."""
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.domain.layers.mamba2 import Mamba2
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


def test_recurrences_read_states_at_their_share():
    found, law, part = costs(RECURRENT), kind_law("hopper", "gated_delta_net"), RECURRENT.linear_attention

    assert found.state_sequence_ns == pytest.approx(2 * part.state_bytes(2) / (BANDWIDTH * law.decode.memory_frac))
    assert found.state_token_ns == costs(RECURRENT, efficiency="shares").state_token_ns
    assert found.other_attention[-1].sequence_ns == 0.0


@pytest.mark.parametrize("accelerator", ["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "l40s", "mi300x"])
@pytest.mark.parametrize("model", [LATENT, COMPRESSED, RECURRENT, KIMI])
def test_one_token_behind_a_prefix_takes_about_what_a_decode_does(model, accelerator):
    priced = Roofline(Roofline.Parameters(), deploy(model, accelerator=load_accelerator(accelerator)))
    for context in (500, 7000, 32_767):
        one, decode = (sum(each[name] for name in ("prefill_attention", "decode_attention", "state")) for each in (
            priced.breakdown([(1, context)], []), priced.breakdown([], [context + 1])))
        assert decode / 2 <= one <= 2 * decode


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
    law, share = kind_note(CSA, generation_of(H100)[0]), kind_note(LATENT.attention, generation_of(H100)[0])

    assert f"decodes {kinds().errors['csa'].decode[LEFT_OUT]:.0%}" in law
    assert share.startswith("latent attention takes one share of peak, ")
    assert f"decodes {kinds().errors['latent'].decode[BY_SHARE]:.0%}" in share
    assert law in law_notes(deploy(COMPRESSED, accelerator=H100), "hopper")
    assert "mean errors" not in " ".join(law_notes(deploy(LATENT, accelerator=H100), "shares"))


def test_uncertainty_has_the_errors_of_kinds():
    found = operator_errors(Roofline.Parameters(), deploy(COMPRESSED, accelerator=H100), False)
    assert "csa decode" in found["decode_attention"].inside.how
