"""Tables of single parts: recurrences, absorbed products, scales, exchanges, wide experts; all by hand."""
import pytest
from msgspec.structs import replace

from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.model_spec import Quantization
from simulator.latency.operators.model import Operators
from support.operator_profiles import MLA, MOE, mla_rows, moe_rows, write_table, write_tables
from support.small_models import DENSE, MIXTURE, RECURRENT, deploy

KDA = "kernel_source,phase,batch_size,seq_len,d_conv,num_k_heads,head_k_dim,num_v_heads,head_v_dim,latency_ms"
MAMBA = "kernel_source,phase,batch_size,seq_len,d_conv,nheads,head_dim,n_groups,d_state,latency_ms"
BATCHES, LENGTHS = (1, 2, 4), (1, 16, 1024)
# One layer attends, one keeps the state of 4 heads.
KIMI = replace(RECURRENT, linear_attention=KimiDeltaAttention(num_heads=4, head_dim=16, conv_kernel=4))
# 64 + 2 x 16 = 96 channels of convolution; 64 x 16 elements of recurrence.
MAMBA_2 = replace(RECURRENT, linear_attention=Mamba2(
    num_heads=4, head_dim=16, num_groups=1, state_size=16, conv_kernel=4))
DEEPSEEK = replace(DENSE, attention=LatentAttention(
    num_heads=4, query_rank=48, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))


@pytest.fixture
def folder(tmp_path):
    return write_tables(tmp_path / "tables")


def build(folder, model, ways=None, **parameters):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache"), **parameters)
    return Operators(parameters, deploy(model, **(ways or {})))


def in_ns(terms):
    return {name: seconds * 1e9 for name, seconds in terms.items()}


# ---- recurrences

def kda_rows(conv_ns=0, heads=(4,), fused=()):
    """Return kernels of `conv_ns` + b s and 1000 ns of prompts; of 500 + b and 1500 ns of decodes, fused 700 + b."""
    rows = []
    for count in {*heads, *fused}:
        site = f"4,{count},16,{count},16"
        for b in BATCHES:
            if count in heads:
                rows += [f"causal_conv1d_fn_qkv3,context,{b},{s},{site},{(conv_ns + b * s) * 1e-6:.9g}"
                         for s in LENGTHS]
                rows += [f"flashkda_fwd,context,{b},{s},{site},0.001" for s in LENGTHS]
                rows += [f"causal_conv1d_update,generation,{b},1,{site},{5e-4 + b * 1e-6:.9g}",
                         f"fused_recurrent_kda,generation,{b},1,{site},0.0015"]
            if count in fused:
                rows.append(f"fused_kda_decode,generation,{b},1,{site},{7e-4 + b * 1e-6:.9g}")
    return rows


def test_kimi_delta_attention_is_its_convolution_and_its_recurrence(folder):
    model = build(write_table(folder, "kda", KDA, kda_rows()), KIMI)

    prompt, decodes = in_ns(model.breakdown(prefill=[(16, 0)])), in_ns(model.breakdown(decode=[4] * 4))

    # one layer attends, 16 x 16 ns; one recurs, 16 + 1000 ns
    assert prompt["prefill_attention"] == pytest.approx(256 + 1016)
    # 1000 + 4 x 4 ns; 500 + 4 + 1500 ns
    assert decodes["decode_attention"] == pytest.approx(1016 + 2004)
    assert decodes["state"] == 0.0
    assert model.provenance()["operators"]["linear_attention decode"] == "measured"
    assert model.provenance()["tables"]["kda context conv1d"]["kernels"] == ["causal_conv1d_fn_qkv3"]


def test_one_kernel_for_all_of_a_decode_comes_first(folder):
    model = build(write_table(folder, "kda", KDA, kda_rows(fused=(4,))), KIMI)

    assert in_ns(model.breakdown(decode=[4] * 4))["decode_attention"] == pytest.approx(1016 + 704)


def test_a_fused_kernel_of_one_other_number_of_heads_does_not_stand_in(folder):
    model = build(write_table(folder, "kda", KDA, kda_rows(fused=(8,))), KIMI)

    assert in_ns(model.breakdown(decode=[4] * 4))["decode_attention"] == pytest.approx(1016 + 2004)


def test_heads_between_measured_ones_are_in_proportion(folder):
    model = build(write_table(folder, "kda", KDA, kda_rows(heads=(2, 8))), KIMI)

    # one octave from both: the mean of the utilisations 2 b / ns and 8 b / ns, at equal ns; 4 / ((2 + 8) / 2) = 0.8
    assert in_ns(model.breakdown(decode=[4] * 4))["decode_attention"] == pytest.approx(1016 + 0.8 * 2004)
    assert model.provenance()["operators"]["linear_attention decode"] == "interpolated"


def test_a_convolution_timed_with_the_host_is_refused(folder):
    model = build(write_table(folder, "kda", KDA, kda_rows(conv_ns=760_000)), KIMI)

    found = in_ns(model.breakdown(prefill=[(16, 0)]))

    assert found["prefill_attention"] == pytest.approx(256)
    assert found["state"] > 0
    assert "the recurrence of Kimi delta attention was not measured" in " ".join(model.warnings())


def mamba_rows(channels=96):
    """Return convolutions of b s ns of prompts, of 500 + b ns of decodes."""
    site = f"4,4,16,1,{(channels - 64) // 2}"
    return [f"causal_conv1d_fn,context,{b},{s},{site},{b * s * 1e-6:.9g}" for b in BATCHES for s in LENGTHS] + [
        f"causal_conv1d_update,generation,{b},1,{site},{5e-4 + b * 1e-6:.9g}" for b in BATCHES]


def test_the_convolution_of_mamba_2_moves_from_its_formula_to_its_table(folder):
    formula = in_ns(build(folder, MAMBA_2).breakdown(decode=[4] * 4))
    tabled = build(write_table(folder, "mamba2", MAMBA, mamba_rows()), MAMBA_2)

    found, prompt = in_ns(tabled.breakdown(decode=[4] * 4)), in_ns(tabled.breakdown(prefill=[(16, 0)]))

    # 4 kernels of 3 us; the widths in and out, 64 + 96 + 4 and 64 of inputs, three times, 2 bytes, at 800 bytes/ns
    elements = 3 * (64 + 96 + 4 + 64)
    assert formula["convolution_gates"] == pytest.approx(12_000 + 4 * elements * 2 / 800)
    # without one kernel, and 96 channels in and out
    assert found["convolution_gates"] == pytest.approx(9_000 + 4 * (elements - 2 * 96) * 2 / 800)
    assert found["decode_attention"] - formula["decode_attention"] == pytest.approx(504)
    assert prompt["prefill_attention"] == pytest.approx(256 + 16)
    # the scan keeps its price of bytes and FLOPs, and is named
    assert found["state"] == formula["state"] > 0
    assert any('kind = "mamba2", is in no table' in text for text in tabled.warnings())


# ---- products and scales

def test_decodes_of_latent_attention_have_absorbed_products_instead_of_expanded_ones(folder):
    for phase in ("context", "generation"):
        write_table(folder, f"{phase}_mla", MLA, mla_rows(phase))
    rows = [f"bfloat16,{m},1024,512,0.002" for m in (1, 2, 32768)]
    (folder / "gemm_perf.csv").write_text("\n".join([(folder / "gemm_perf.csv").read_text().strip(), *rows]) + "\n")
    absorbed = [f"{name},bfloat16,{m},4,{us * 1e-3 + m * 1e-6:.9g}"
                for name, us in (("mla_gen_pre", 3), ("mla_gen_post", 5)) for m in (1, 4, 1024)]
    write_table(folder, "mla_bmm", "op_name,bmm_dtype,num_tokens,num_heads,latency_ms", absorbed)

    model = build(folder, DEEPSEEK)
    found = in_ns(model.breakdown(decode=[16] * 4))

    # 2 layers: a kernel of 1000 + 4 x 16 ns, products of 3004 and 5004 ns in place of one of 2000
    assert found["decode_attention"] == pytest.approx(2 * (1064 + 3004 + 5004 - 2000))
    assert found["kv_up"] == pytest.approx(2 * 2000)
    assert in_ns(model.breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(2 * 225)


def fp8_rows():
    return [f"{dtype},{m},{n},{k},0.001" for dtype in ("bfloat16", "fp8")
            for n, k in ((128, 64), (64, 64), (256, 64), (64, 128), (1024, 64)) for m in (1, 32768)]


@pytest.mark.parametrize(("method", "scales_ns"), [("compressed-tensors", 64 + 4), ("modelopt", 0)])
def test_scales_of_each_token_are_found_where_a_checkpoint_has_them(tmp_path, method, scales_ns):
    folder = write_tables(tmp_path / "tables", gemm=fp8_rows())
    write_table(folder, "scale_matrix", "m,k,latency_ms", [f"{m},64,{2e-3 + m * 1e-6:.9g}" for m in (1, 4, 1024)])
    write_table(folder, "computescale", "m,k,quant_dtype,latency_ms",
                [f"{m},{k},fp8,{k * 1e-6 + m * 1e-6:.9g}" for k in (60, 80) for m in (1, 4, 1024)])
    quantized = replace(DENSE, quantization=Quantization(method=method, weight_dtype="fp8"))

    found = in_ns(build(folder, quantized).breakdown(decode=[4] * 4))

    # 2 layers: 64 elements of 4 tokens, 2000 + 4 ns; their scales between those of 60 and 80, 64 + 4 ns
    assert found["quantizing"] == pytest.approx(2 * (2004 + scales_ns))


def test_scales_may_take_no_time(tmp_path):
    folder = write_tables(tmp_path / "tables", gemm=fp8_rows())
    write_table(folder, "scale_matrix", "m,k,latency_ms", ["1,64,0.002", "1024,64,0.002"])
    write_table(folder, "computescale", "m,k,quant_dtype,latency_ms", ["1,64,fp8,0", "1024,64,fp8,0.001"])
    quantized = replace(DENSE, quantization=Quantization(method="fbgemm_fp8", weight_dtype="fp8"))

    assert in_ns(build(folder, quantized).breakdown(decode=[4]))["quantizing"] == pytest.approx(2 * 2000)


# ---- exchanges of experts

A2A = "comm_backend,phase,ep_size,hidden_size,topk,num_experts,num_tokens,sms,latency"
RACK = "op_name,kernel_source,moe_dtype,moe_ep_size,hidden_size,topk,num_experts,num_tokens,latency_ms"


def exchange_us(model, sequences=32):
    found = model.breakdown(decode=[4] * sequences)
    return found["expert_dispatch"] * 1e6, found["expert_combine"] * 1e6


@pytest.mark.parametrize(("mode", "factor"), [("deepep_low_latency", 1), ("deepep_high_throughput", 3)])
def test_exchanges_as_vllm_runs_them_are_in_microseconds(tmp_path, mode, factor):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 8)))
    rows = [f"{name},{phase},8,64,2,8,{t},{sms},{scale * (us + t)}" for t in (1, 4, 1024)
            for name, sms, scale in (("deepep_ll", 0, 1), ("deepep_ht", 20, 3), ("deepep_ht", 64, 2),
                                     ("deepep_v2_context", 64, 9))
            for phase, us in (("dispatch", 40), ("combine", 60))]
    model = build(write_table(folder, "moe_a2a", A2A, rows), MIXTURE, all2all_backend=mode,
                  ways={"data_parallel": 8, "expert_parallel": 8})

    # 4 tokens on each rank, one layer of experts
    assert exchange_us(model) == pytest.approx((factor * 44, factor * 64))
    assert model.provenance()["operators"]["expert_dispatch"] == "measured"


@pytest.mark.parametrize(("mode", "dispatch", "combine"), [
    ("flashinfer_nvlink_two_sided", 10 + 20, 30), ("flashinfer_nvlink_one_sided", 200, 300)])
def test_exchanges_over_nvlink_are_the_sum_of_their_kernels(tmp_path, mode, dispatch, combine):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 4)))
    rows = []
    for kernel, scale, names in (("NVLinkTwoSided", 1, ("prepare", "dispatch", "combine")),
                                 ("NVLinkOneSided", 10, ("dispatch", "combine"))):
        rows += [f"alltoall_{name},{kernel},{sent},4,64,2,8,{t},{slow * scale * us * 1e-3:.9g}"
                 for name, us in (("prepare", 10), ("dispatch", 20), ("combine", 30)) if name in names
                 for sent, slow in (("bfloat16", 1), ("nvfp4", 0.5)) for t in (1, 1024)]
    model = build(write_table(folder, "trtllm_alltoall", RACK, rows), MIXTURE, all2all_backend=mode,
                  ways={"data_parallel": 4, "expert_parallel": 4})

    assert exchange_us(model) == pytest.approx((dispatch, combine))


# ---- wide expert parallelism

def wide(folder, framework, mode):
    return in_ns(build(folder, MIXTURE, framework=framework, all2all_backend=mode,
                       ways={"data_parallel": 8, "expert_parallel": 8}).breakdown(decode=[4] * 32))


def test_experts_and_shared_expert_behind_deepep_have_tables_of_their_own(tmp_path):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 8)))
    for phase, factor in (("context", 3), ("generation", 1)):
        rows = [f"{place},{load},{factor * scale * float(ms):.9g}"
                for load, scale in (("uniform", 1), ("power_law_1.01", 2))
                for place, _, ms in (row.rsplit(",", 2) for row in moe_rows(ways=(1, 8)))]
        write_table(folder, f"wideep_{phase}_moe", MOE, rows)
        write_table(folder, f"wideep_{phase}_mlp", "quant_type,num_token,hidden_size,intermediate_size,avg_ms",
                    [f"bfloat16,{t},64,32,{factor * 1e-3 * (5 + t):.9g}" for t in (1, 4, 1024)])

    low, high = wide(folder, "sglang", "deepep_low_latency"), wide(folder, "sglang", "deepep_high_throughput")
    gathered = wide(folder, "sglang", None)

    # the skewed load: 2 x (1000 + 10 x 32 tokens of all ranks); 5 + 4 us of the tokens of one
    assert low["experts"] == pytest.approx(2 * 1320)
    assert high["experts"] == pytest.approx(3 * 2 * 1320)
    assert low["shared_experts"] == pytest.approx(9_000)
    assert high["shared_experts"] == pytest.approx(27_000)
    assert gathered["experts"] == pytest.approx(1320)
    assert "shared_experts" not in gathered


def test_experts_of_tensorrt_llm_behind_nvlink_have_one_slot_each(tmp_path):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 8)))
    rows = [f"bfloat16,{t},64,32,2,8,{slots},1,8,power_law_1.01,{scale * (2e-3 + t * 1e-5):.9g}"
            for slots, scale in ((8, 1), (12, 0.5)) for t in (1, 32, 1024)]
    write_table(folder, "wideep_moe", "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,num_slots,"
                "moe_tp_size,moe_ep_size,distribution,latency_ms", rows)

    assert wide(folder, "trtllm", "flashinfer_nvlink_two_sided")["experts"] == pytest.approx(2320)
    assert wide(folder, "vllm", "flashinfer_nvlink_two_sided")["experts"] == pytest.approx(1320)
