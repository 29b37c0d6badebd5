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


def test_latent_attention_has_its_shares_of_peak_and_what_lies_beside():
    found, law = costs(LATENT, tensor_parallel=2), kind_law("hopper", "latent")

    # 2 layers, 2 of 4 heads: 2 x 2 x (24 + 16) FLOPs a pair; 2 x 2 x (2 x 32 + 8) a latent; latents of 40 elements
    assert found.full_attention.context_flops_ns == pytest.approx(2 * 288 / (PEAK * law.decode.compute_frac))
    assert found.full_attention.context_kv_ns == pytest.approx(2 * 80 / (BANDWIDTH * law.decode.memory_frac))
    assert found.full_attention.pair_ns == pytest.approx(2 * 160 / (PEAK * law.prefill.compute_frac))
    assert found.full_attention.prefill_context_ns == pytest.approx(2 * 80 / (BANDWIDTH * law.prefill.memory_frac))
    # queries and outputs of 2 heads of 24 and 16
    beside = found.other_attention[-1]
    assert beside.prefill_query_ns == pytest.approx(2 * law.prefill.passes * 2 * 40 * 2 / BANDWIDTH)
    assert beside.sequence_ns == pytest.approx(2 * law.decode.passes * 2 * 40 * 2 / BANDWIDTH)
    assert (beside.prefill_floor_ns, beside.decode_floor_ns) == pytest.approx(
        (2e3 * law.prefill.floor_us, 2e3 * law.decode.floor_us))


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


@pytest.mark.parametrize(("model", "kind"), [(KIMI, "kda"), (RECURRENT, "gated_delta_net")])
def test_recurrences_read_states_and_compute_tokens_at_their_shares(model, kind):
    found, law, part = costs(model), kind_law("hopper", kind), model.linear_attention

    assert found.state_sequence_ns == pytest.approx(2 * part.state_bytes(2) / (BANDWIDTH * law.decode.memory_frac))
    assert found.state_token_ns == pytest.approx(part.state_flops_per_token / (PEAK * law.prefill.compute_frac))
    assert found.other_attention[-1].sequence_ns == 0.0


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
    for kind in ("latent", "csa", "hca", "msa", "gated_delta_net", "kda"):
        error = kinds().errors[kind].decode
        assert error[LEFT_OUT] < error[BY_SHARE]
        assert kind_law("hopper", kind).decode and kind_law("blackwell", kind).decode


def test_notes_name_the_error_of_a_law():
    deployment = deploy(LATENT, accelerator=H100)
    note = kind_note(LATENT.attention, generation_of(H100)[0])

    error = kinds().errors["latent"].decode[LEFT_OUT]
    assert f"decodes {error:.0%}" in note
    assert note in law_notes(deployment, "hopper")
    assert "mean errors on accelerators left out" not in " ".join(law_notes(deployment, "shares"))


def test_uncertainty_has_the_errors_of_kinds():
    found = operator_errors(Roofline.Parameters(), deploy(KIMI, accelerator=H100), False)

    assert found["state"].inside is not None
    latent = operator_errors(Roofline.Parameters(), deploy(LATENT, accelerator=H100), False)
    assert "latent decode" in latent["decode_attention"].inside.how
