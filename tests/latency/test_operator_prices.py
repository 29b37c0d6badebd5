"""What is between kernels that were measured, and which measurements are sound: terms by hand."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.model_spec import Quantization
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.model import Operators
from simulator.latency.operators.products import sustained
from support.operator_profiles import gemm_rows, moe_rows, write_layers, write_tables
from support.small_models import ACCELERATOR, DENSE, MIXTURE, deploy

MOE_KERNELS = ("moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,"
               "kernel_source,latency_ms")
NORMED = replace(DENSE, attention=replace(DENSE.attention, qk_norm="head"))
FP4_EXPERTS = replace(MIXTURE, quantization=Quantization(
    method="mxfp4", weight_dtype="fp4", scope="experts", group_size=32, scale_bits=8))
FP8_EXPERTS = replace(MIXTURE, quantization=Quantization(method="fp8", weight_dtype="fp8", scope="experts"))
HOPPER = replace(ACCELERATOR, architecture="Hopper")
SERVER = replace(ACCELERATOR, architecture="Blackwell")


@pytest.fixture
def build(tmp_path):
    def build(folder, model=DENSE, accelerator=ACCELERATOR, weight_dtype=None, **parameters):
        chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), **parameters)
        return Operators(chosen, deploy(model, accelerator=accelerator, weight_dtype=weight_dtype))
    return build


def in_ns(terms):
    return {name: seconds * 1e9 for name, seconds in terms.items()}


# ---- small kernels

def test_norms_of_queries_and_keys_are_two_kernels_a_layer(build, tmp_path):
    found = in_ns(build(write_tables(tmp_path / "t"), NORMED).breakdown(decode=[4] * 8))

    # 8 tokens x (4 + 2) heads of 16, read and written in 2 bytes at 800 bytes a ns; 3 us a kernel; 2 layers
    assert found["qk_norm"] == pytest.approx(2 * (6000 + 8 * 2 * 96 * 2 / 800))
    assert "qk_norm" not in build(write_tables(tmp_path / "u")).breakdown(decode=[4] * 8)


def test_norms_that_a_profile_timed_together_count_once(build, tmp_path):
    folder = write_layers(tmp_path)
    with (folder / "dense.csv").open("a") as file:
        file.write("qk_norm,1,5\nqk_norm,16,80\n")

    assert in_ns(build(folder, NORMED).breakdown(decode=[4] * 8))["qk_norm"] == pytest.approx(2 * 40_000)


def test_outputs_of_attention_are_quantised_for_fp8_weights(build, tmp_path):
    fp8 = gemm_rows() + gemm_rows("fp8")
    folder = write_tables(tmp_path / "t", gemm=fp8)
    bare = in_ns(build(folder, weight_dtype="fp8").breakdown(decode=[4] * 8))
    (folder / "scale_matrix_perf.csv").write_text("m,k,latency_ms\n1,64,0.002\n16,64,0.017\n")
    measured = in_ns(build(folder, weight_dtype="fp8").breakdown(decode=[4] * 8))

    # 8 tokens of 64 elements: 2 + 7 us, a layer; or 3 bytes an element
    assert measured["quantizing"] == pytest.approx(2 * 9000)
    assert bare["quantizing"] == pytest.approx(2 * (3000 + 8 * 1.5 * 64 * 2 / 800))
    assert "quantizing" not in build(folder).breakdown(decode=[4] * 8)


# ---- long products

def test_long_products_are_no_faster_than_the_longest():
    sizes = np.array([2048.0, 4096.0, 8192.0, 16384.0, 32768.0])
    burst = Curve(sizes, sizes * [1.0, 1.0, 1.5, 2.0, 2.2])

    assert (sustained(burst).ns / sizes).tolist() == pytest.approx([1.0, 2.1, 2.1, 2.0, 2.2])
    short = Curve(sizes[:3], sizes[:3] * 1.0)
    assert sustained(short) is short


# ---- which experts

def kernel_rows(dtype, kernel, ms, site=(64, 32, 2, 8), tokens=(1, 1024)):
    hidden, inter, chosen, count = site
    return [f"{dtype},{t},{hidden},{inter},{chosen},{count},1,1,balanced,{kernel},{at}" for t, at in zip(tokens, ms,
                                                                                                         strict=True)]


def with_kernels(folder, *rows):
    write_tables(folder, moe=None)
    (folder / "moe_perf.csv").write_text("\n".join([MOE_KERNELS, *(row for part in rows for row in part)]) + "\n")
    return folder


def experts_of(model, tokens):
    return in_ns(model.breakdown(decode=[4] * tokens))["experts"]


def test_the_skewed_load_is_the_default_where_it_was_measured(build, tmp_path):
    both = write_tables(tmp_path / "both", moe=moe_rows() + [
        row.replace("0.00101", "0.0015") for row in moe_rows(distribution="power_law_1.01")])

    assert in_ns(build(both, MIXTURE).breakdown(decode=[4]))["experts"] == pytest.approx(1500)
    assert in_ns(build(both, MIXTURE, expert_load="balanced").breakdown(decode=[4]))["experts"] == pytest.approx(1010)
    even = write_tables(tmp_path / "even")
    assert in_ns(build(even, MIXTURE).breakdown(decode=[4]))["experts"] == pytest.approx(1010)


def test_mxfp4_experts_run_on_marlin_where_vllm_does(build, tmp_path):
    folder = with_kernels(tmp_path / "t", kernel_rows("w4a16_mxfp4", "vllm_triton", (0.010, 0.020)),
                          kernel_rows("w4a16_mxfp4", "vllm_marlin", (0.012, 0.090)))

    assert experts_of(build(folder, FP4_EXPERTS, HOPPER), 1) == pytest.approx(12_000)
    assert experts_of(build(folder, FP4_EXPERTS, HOPPER, expert_kernel="triton"), 1) == pytest.approx(10_000)
    # of two measured the faster where nobody says which: another framework's engine chooses
    assert experts_of(build(folder, FP4_EXPERTS, HOPPER, framework="sglang"), 1) == pytest.approx(10_000)


def test_a_kernel_of_another_mixture_lends_its_utilisation_at_as_many_rows_an_expert(build, tmp_path):
    own = kernel_rows("w4a16_mxfp4", "vllm_triton", (0.010, 0.020))
    other = kernel_rows("w4a16_mxfp4", "vllm_marlin", (0.001, 0.400), site=(64, 32, 2, 16), tokens=(2, 2048))
    model = build(with_kernels(tmp_path / "t", own, other), FP4_EXPERTS, HOPPER)

    # 1,024 tokens bring 256 rows to each expert, as 2,048 do to each of 16: twice the rows, so half of the 400 us; a
    # token's 0.5 us are less than the launches of this mixture's own kernel
    prompt = in_ns(model.breakdown(prefill=[(1024, 0)]))["experts"]
    assert prompt == pytest.approx(200_000, rel=1e-6)
    assert experts_of(model, 1) == pytest.approx(10_000)
    assert any("marlin serves these experts" in note for note in model.warnings())


def test_tensorrt_llms_generated_kernels_are_its_own_or_sglangs(build, tmp_path):
    own = kernel_rows("bfloat16", "deepgemm", (0.090, 0.100))
    lent = kernel_rows("bfloat16", "sglang_flashinfer_trtllm_moe", (0.030, 0.040))
    folder = with_kernels(tmp_path / "t", own)
    (folder / "sglang_moe_perf.csv").write_text("\n".join(
        [MOE_KERNELS, *lent, *kernel_rows("bfloat16", "sglang_fused_moe_triton", (0.010, 0.020))]) + "\n")

    def found(**asked):
        return experts_of(build(folder, MIXTURE, framework="trtllm", **asked), 1)

    assert found() == pytest.approx(90_000)
    assert found(expert_kernel="trtllm") == pytest.approx(30_000)
    with_kernels(folder, own, kernel_rows("bfloat16", "moe_torch_flow_min_latency", (0.020, 0.030)))
    assert found(expert_kernel="trtllm") == pytest.approx(20_000)


def test_marlin_lends_its_utilisation_in_int4_where_mxfp4_was_not_measured(build, tmp_path):
    folder = with_kernels(tmp_path / "t", kernel_rows("bfloat16", "vllm_triton", (0.010, 0.020)))
    (folder / "sglang_moe_perf.csv").write_text("\n".join(
        [MOE_KERNELS, *kernel_rows("int4_wo", "sglang_marlin_moe", (0.001, 0.400))]) + "\n")
    model = build(folder, FP4_EXPERTS, HOPPER)

    # bound by weights, of 4.25 and 4.5 bits with their scales
    assert in_ns(model.breakdown(prefill=[(1024, 0)]))["experts"] == pytest.approx(400_000 * 4.25 / 4.5, rel=1e-6)
    assert any("in int4_wo" in note for note in model.warnings())


def test_blackwell_servers_multiply_mxfp4_with_mxfp8(build, tmp_path):
    folder = with_kernels(tmp_path / "t", kernel_rows("w4a16_mxfp4", "vllm_flashinfer_mxfp4_bf16", (0.010, 0.020)),
                          kernel_rows("w4a8_mxfp4_mxfp8", "vllm_flashinfer_mxfp4_mxfp8", (0.007, 0.014)))

    assert experts_of(build(folder, FP4_EXPERTS, SERVER), 1) == pytest.approx(7000)
    assert experts_of(build(folder, FP4_EXPERTS, ACCELERATOR), 1) == pytest.approx(10_000)
    assert experts_of(build(folder, FP4_EXPERTS, ACCELERATOR, expert_kernel="w4a8"), 1) == pytest.approx(7000)


def nested(folder, version, rows):
    pyarrow = pytest.importorskip("pyarrow", reason="tables of several versions are Parquet files")
    import pyarrow.parquet as parquet
    path = folder / "data" / "round" / "moe" / "vllm" / version / "moe_perf.parquet"
    path.parent.mkdir(parents=True)
    names = MOE_KERNELS.split(",")
    texts = {"moe_dtype", "distribution", "kernel_source"}
    cells = [row.split(",") for row in rows]
    parquet.write_table(pyarrow.table({
        name: [line[i] if name in texts else float(line[i]) for line in cells]
        for i, name in enumerate(names)}), path)


def test_fp8_rows_slower_than_bfloat16_give_way_to_the_utilisation_of_those(build, tmp_path):
    plain = kernel_rows("bfloat16", "k", (0.010, 0.020))
    slow = with_kernels(tmp_path / "slow", plain, kernel_rows("fp8", "k", (0.060, 0.070)))
    sound = with_kernels(tmp_path / "sound", plain, kernel_rows("fp8", "k", (0.006, 0.012)))

    assert experts_of(build(sound, FP8_EXPERTS), 1) == pytest.approx(6000)
    model = build(slow, FP8_EXPERTS)
    assert experts_of(model, 1) == pytest.approx(5000)      # half the bytes
    assert any("take longer than bfloat16 ones" in note for note in model.warnings())


def test_of_two_versions_the_sound_one_is_read(build, tmp_path):
    plain = kernel_rows("bfloat16", "k", (0.010, 0.020))
    write_tables(tmp_path / "flat")
    nested(tmp_path / "db", "0.24.0", [*plain, *kernel_rows("fp8", "k", (0.060, 0.070))])
    nested(tmp_path / "db", "0.19.0", [*plain, *kernel_rows("fp8", "k", (0.006, 0.012))])

    model = build(tmp_path / "db", FP8_EXPERTS, system="round")

    assert experts_of(model, 1) == pytest.approx(6000)
    assert model.sources["moe"]["version"] == "0.19.0"
    assert any("those of 0.19.0 are used" in note for note in model.warnings())


# ---- decodes beside prompts

def test_a_profile_says_what_decodes_take_beside_prompts(build, tmp_path):
    folder = write_layers(tmp_path)
    with (folder / "attention.csv").open("a") as file:
        for n, context in ((2, 16), (2, 32), (4, 16), (4, 32)):     # a prompt of 128: 200 us; decodes: n x context us
            file.write(f"128,0,{n},{context},{200 + n * context}\n")
        file.write("128,0,0,0,200\n")
    model = build(folder)

    alone = in_ns(model.breakdown(decode=[16] * 4))["decode_attention"]
    beside = in_ns(model.breakdown(prefill=[(16, 0)], decode=[16] * 4))["decode_attention"]

    assert alone == pytest.approx(2 * 640)
    assert beside == pytest.approx(2 * 64_000)
    assert in_ns(model.breakdown(prefill=[(16, 0)], decode=[16] * 3))["decode_attention"] == pytest.approx(2 * 48_000)
    assert model.provenance()["operators"]["attention beside prompts"] == "measured"


@pytest.mark.parametrize(("architecture", "links", "sinks", "is_joined"), [
    ("Ampere", 1e11, False, True), ("Blackwell", 0.0, False, True), ("Blackwell", 1e11, False, False),
    ("Hopper", 1e11, False, False), ("Ampere", 1e11, True, False)])
def test_flash_attention_2_does_not_split_decodes_beside_prompts(build, tmp_path, architecture, links, sinks,
                                                                 is_joined):
    accelerator = replace(ACCELERATOR, architecture=architecture, scaleup_bytes_per_s=links)
    wide = replace(DENSE, attention=replace(DENSE.attention, num_heads=4, num_kv_heads=1, sinks=sinks))
    model = build(write_tables(tmp_path / "t"), wide, accelerator)

    alone = in_ns(model.breakdown(decode=[64] * 4))["decode_attention"]
    beside = in_ns(model.breakdown(prefill=[(16, 0)], decode=[64] * 4))["decode_attention"]

    assert (beside != alone) == is_joined
    assert ("attention beside prompts" in model.provenance()["operators"]) == is_joined
    assert any("num_cores of" in note for note in model.warnings()) == (is_joined and not ACCELERATOR.num_cores)


def test_cores_that_are_not_known_are_named(build, tmp_path):
    card = replace(ACCELERATOR, architecture="Ampere", num_cores=0)
    notes = [build(write_tables(tmp_path / f"t{cores}"), DENSE, replace(card, num_cores=cores)).warnings()
             for cores in (0, 100)]
    assert [[f"num_cores of {card.name} is not known" in note for note in each].count(True) for each in notes] == [1, 0]


def test_a_prompt_of_one_token_is_computed_as_a_decode_is(build, tmp_path):
    workstation = replace(ACCELERATOR, architecture="Ampere")
    wide = replace(DENSE, attention=replace(DENSE.attention, num_heads=4, num_kv_heads=1))
    model = build(write_tables(tmp_path / "t"), wide, workstation)

    def attention(prefill):
        return in_ns(model.breakdown(prefill=prefill, decode=[64] * 4))["decode_attention"]

    assert attention([(1, 15)]) == attention([]) != attention([(2, 14)])
    assert attention([(1, 15), (2, 14)]) == attention([(2, 14)])


def test_a_cache_that_the_checkpoint_declares_is_told(build, tmp_path):
    declared = replace(DENSE, quantization=Quantization(method="fp8", weight_dtype="fp8", kv_cache_dtype="fp8"))
    folder = write_tables(tmp_path / "t", gemm=gemm_rows() + gemm_rows("fp8"))

    assert any("declares a KV cache in fp8" in note for note in build(folder, declared).warnings())
    assert not any("declares a KV cache" in note for note in build(folder).warnings())


# ---- prices that are left out

def test_prices_left_out_are_those_named(build, tmp_path):
    folder = write_tables(tmp_path / "t", gemm=gemm_rows() + gemm_rows("fp8"))
    batch = {"prefill": [(16, 0)], "decode": [64] * 4}
    accelerator = replace(ACCELERATOR, architecture="Ampere")
    wide = replace(NORMED, attention=replace(NORMED.attention, num_heads=4, num_kv_heads=1))

    def terms(*without):
        return in_ns(build(folder, wide, accelerator, "fp8", without=without).breakdown(**batch))

    whole = terms()
    assert whole.keys() - terms("qk_norm").keys() == {"qk_norm"}
    assert whole.keys() - terms("quantizing").keys() == {"quantizing"}
    alone = in_ns(build(folder, wide, accelerator, "fp8").breakdown(decode=[64] * 4))["decode_attention"]
    assert terms("mixed_attention") == pytest.approx(whole | {"decode_attention": alone})
    bare = terms("qk_norm", "quantizing", "mixed_attention")
    assert sum(whole.values()) - sum(bare.values()) == pytest.approx(
        whole["qk_norm"] + whole["quantizing"] + whole["decode_attention"] - alone)


def test_points_count_as_measured_where_the_price_is_left_out(build, tmp_path):
    # a product of (128, 64) weights in 4 ns, its bytes take four times that; long ones in half the time of the longest
    sizes = (1, 4096, 8192, 32768)
    rows = [f"bfloat16,{m},128,64,{ms}" for m, ms in zip(sizes, (0.000004, 0.001, 0.002, 0.016))]
    other = [row for row in gemm_rows() if row.split(",")[2:4] != ["128", "64"]]
    folder = write_tables(tmp_path / "t", gemm=[*other, *rows])

    def qkv(tokens, *without):
        return in_ns(build(folder, without=without).breakdown(prefill=[(tokens, 0)]))["qkv"] / 2

    assert (qkv(1), qkv(1, "memory_floor")) == pytest.approx((16.384, 4.0))
    assert (qkv(8192), qkv(8192, "lasting_rate")) == pytest.approx((4000.0, 2000.0))
    assert "operators: prices left out: memory_floor" in build(folder, without=("memory_floor",)).warnings()
