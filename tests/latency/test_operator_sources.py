"""Operators of other sources and kinds: LLMServingSim's profiles, latent attention, recurrences; all by hand."""
import pytest
from msgspec.structs import replace

from simulator.domain.layers.latent import LatentAttention
from simulator.errors import InputErrors
from simulator.latency.operators import llmservingsim as operator_llmservingsim
from simulator.latency.operators.model import Operators
from support.operator_profiles import GDN, MLA, gdn_rows, mla_rows, write_layers, write_table, write_tables
from support.small_models import DENSE, MIXTURE, RECURRENT, deploy

# DeepSeek's widths, in a model that is otherwise small.
DEEPSEEK = replace(DENSE, attention=LatentAttention(
    num_heads=4, query_rank=48, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))


def build(folder, model, cache, **ways):
    return Operators(Operators.Parameters(path=str(folder), cache_directory=str(cache)), deploy(model, **ways))


def in_ns(terms):
    return {name: seconds * 1e9 for name, seconds in terms.items()}


def test_a_profile_of_layers_gives_its_products_and_attention(tmp_path):
    model = build(write_layers(tmp_path), DENSE, tmp_path / "cache")

    found = in_ns(model.breakdown(prefill=[(16, 0)], decode=[]))
    decodes = in_ns(model.breakdown(decode=[32] * 4))

    # 16 tokens in 2 layers: 1, 2, 3, 4 us a token; one sampled row: 5 us; 16 x 16 / 100 us
    assert [found[name] for name in ("qkv", "attention_out", "up_gate", "down")] == pytest.approx(
        [32_000, 64_000, 96_000, 128_000])
    assert found["lm_head"] == pytest.approx(5000)
    assert found["prefill_attention"] == pytest.approx(2 * 2560)
    # 4 sequences x 32 / 100 us
    assert decodes["decode_attention"] == pytest.approx(2 * 1280)
    assert model.provenance()["operators"]["qkv"] == "measured"


def test_a_profile_of_layers_gives_what_lies_between_its_products(tmp_path):
    folder = write_layers(tmp_path)
    rows = [f"{layer},{t},{us * t}" for us, layer in enumerate(
        ("layernorm", "act_fn", "embedding", "rotary_emb", "qk_norm"), start=1) for t in (1, 16)]
    with (folder / "dense.csv").open("a") as file:
        file.write("\n".join(rows) + "\n")

    model = build(folder, DENSE, tmp_path / "cache")
    found = in_ns(model.breakdown(decode=[4] * 8))

    # 8 tokens, between 1 and 16: 5 norms of 1 us a token, 2 activations of 2, one embedding of 3, 2 rotations of 4; the
    # sampler's 5 us a row
    assert [found[name] for name in ("norms", "activation", "embedding", "rope_kv_write")] == pytest.approx(
        [5 * 8_000, 2 * 16_000, 24_000, 2 * 32_000])
    assert found["sampler"] == pytest.approx(40_000)
    assert model.provenance()["operators"]["norms"] == "measured"


def test_a_profile_of_layers_is_converted_once(tmp_path, monkeypatch):
    folder = write_layers(tmp_path)
    first = build(folder, DENSE, tmp_path / "cache").predict(decode=[4] * 8)
    monkeypatch.setattr(operator_llmservingsim, "read_profile", None)

    assert build(folder, DENSE, tmp_path / "cache").predict(decode=[4] * 8) == first


def test_experts_of_a_profile_are_those_of_the_expected_number(tmp_path):
    model = build(write_layers(tmp_path, experts=True), MIXTURE, tmp_path / "cache")

    assert in_ns(model.breakdown(decode=[32] * 4))["experts"] == pytest.approx(20_000)
    assert in_ns(model.breakdown(decode=[32]))["experts"] == pytest.approx(10_000)


def test_a_profile_of_another_degree_is_refused(tmp_path):
    with pytest.raises(InputErrors, match="tp2: profile of tensor_parallel = 2, the deployment has 1"):
        build(write_layers(tmp_path, degree=2), DENSE, tmp_path / "cache")


def test_a_fault_of_a_profile_names_its_line(tmp_path):
    folder = write_layers(tmp_path)
    text = (folder / "dense.csv").read_text().replace("qkv_proj,2,2", "qkv_proj,2,two")
    (folder / "dense.csv").write_text(text)

    with pytest.raises(InputErrors, match=r'dense.csv:3: time_us: expected a finite number >= 0, found "two"'):
        build(folder, DENSE, tmp_path / "cache")


def test_latent_attention_is_read_from_tables_of_its_kernel(tmp_path):
    folder = write_tables(tmp_path / "tables")
    for phase in ("context", "generation"):
        write_table(folder, f"{phase}_mla", MLA, mla_rows(phase))

    model = build(folder, DEEPSEEK, tmp_path / "cache")

    # 2 layers: 15 x 15 ns; 1000 + 4 x 16 ns
    assert in_ns(model.breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(2 * 225)
    assert in_ns(model.breakdown(decode=[16] * 4))["decode_attention"] == pytest.approx(2 * 1064)
    assert model.provenance()["operators"]["attention decode"] == "measured"


def test_latent_attention_launched_by_the_host_is_refused(tmp_path):
    folder = write_tables(tmp_path / "tables")
    slow = [row.rsplit(",", 1)[0] + ",0.3" for row in mla_rows("generation")]
    write_table(folder, "generation_mla", MLA, slow)

    model = build(folder, DEEPSEEK, tmp_path / "cache")

    assert model.provenance()["operators"]["attention decode"] == "roofline"
    assert any("all rows take 300 us at least" in told for told in model.warnings())


def test_recurrences_are_the_sum_of_their_kernels(tmp_path):
    model = build(write_table(write_tables(tmp_path / "tables"), "gdn", GDN, gdn_rows()), RECURRENT, tmp_path / "cache")

    prompt = in_ns(model.breakdown(prefill=[(16, 0)]))
    decodes = in_ns(model.breakdown(decode=[4] * 4))

    # one layer attends, 16 x 16 ns; one recurs, 16 + 1000 ns
    assert prompt["prefill_attention"] == pytest.approx(256 + 1016)
    # 1000 + 4 x 4 ns; 500 + 4 + 1000 ns
    assert decodes["decode_attention"] == pytest.approx(1016 + 1504)
    assert decodes["state"] == 0.0
    assert model.provenance()["operators"]["linear_attention decode"] == "measured"
