"""The roofline as a function of the batch: exact sums, monotone, close to measured engines."""
import csv
import gzip
import json
from statistics import median

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node, names
from simulator.domain.model_spec import Quantization
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.latency.roofline.model import Roofline
from support.goldens import GOLDENS
from support.small_models import ACCELERATOR, DENSE, LATENT, MIXTURE, NODE, RECURRENT, SLIDING, deploy

SHARES = {
    "mfu_prefill": 0.5, "mfu_decode": 0.5, "mfu_attention": 0.5, "bandwidth_efficiency": 0.5, "link_efficiency": 0.5,
    "kernel_latency_us": 0.001, "attention_latency_us": 0.01, "collective_latency_us": 0.1}
MEASURED = GOLDENS.parent / "data" / "profiles" / "measured_vllm" / "RTXPRO6000" / "Llama-3.1-8B"


def roofline(model=DENSE, parameters=SHARES, **deployment):
    return Roofline(Roofline.Parameters(**parameters), deploy(model, **deployment))


def in_ns(seconds):
    return {name: value * 1e9 for name, value in seconds.items()}


# ---- whole iterations by hand; coefficients as in test_roofline_costs.py

def test_small_batch_waits_for_memory():
    model = roofline()
    batch = {"prefill": [(100, 20)], "decode": [50, 50, 50]}

    # 100 + 3 tokens x 0.294912 = 30 ns of arithmetic < 296.192 ns of weights; 4 rows x 0.262144 < 262.144
    # prompts: 100 x (20 + 101/2) = 7,050 pairs x 0.001024 = 7.2 < (20 + 100) x 0.512 = 61.44; decodes: 150 x 0.512
    assert in_ns(model.breakdown(**batch)) == pytest.approx({
        "dense": 296.192, "experts": 0.0, "head": 262.144, "prefill_attention": 61.44, "decode_attention": 76.8,
        "state": 0.0, "activations": 103 * 12.288, "sampler": 4 * 20.48, "collectives": 0.0, "latencies": 41.0})
    assert model.predict(**batch) == pytest.approx(2085.16e-9)


def test_long_prompt_waits_for_arithmetic():
    found = in_ns(roofline().breakdown(prefill=[(2000, 0)]))

    # 2000 x 0.294912; 2000 x 2001 / 2 pairs x 0.001024 > 2000 x 0.512
    assert found["dense"] == pytest.approx(589.824)
    assert found["prefill_attention"] == pytest.approx(2_001_000 * 0.001024)


def test_prompts_and_decodes_share_one_pass_over_the_weights():
    model = roofline()

    mixed = model.breakdown(prefill=[(100, 0)], decode=[10])["dense"]

    assert mixed == model.breakdown(prefill=[(100, 0)])["dense"] == model.breakdown(decode=[10])["dense"]


def test_prefill_and_decode_have_shares_of_their_own():
    model = roofline(parameters={**SHARES, "mfu_prefill": 0.25})

    # 3000 prompt tokens at a quarter of peak, 1000 decode tokens at half: 3000 x 0.589824 + 1000 x 0.294912
    found = model.breakdown(prefill=[(3000, 0)], decode=[1] * 1000)["dense"]
    assert found == pytest.approx(2064.384e-9)


def test_experts_are_read_as_the_tokens_need_them():
    model = roofline(MIXTURE)

    # 1 token: 2 of 8; 2 tokens: 3.5; 1000 tokens: all 8, but 1000 x 0.049152 = 49 < 196.608
    found = [model.breakdown(decode=[1] * tokens)["experts"] for tokens in (1, 2, 1000)]
    assert found == pytest.approx([49.152e-9, 86.016e-9, 196.608e-9])


def test_window_bounds_the_context_of_decodes():
    # 350 tokens in the full layer, at most 2 x 100 in the sliding one: 550 x 0.256
    found = roofline(SLIDING).breakdown(decode=[50, 300])["decode_attention"]
    assert found == pytest.approx(140.8e-9)


def test_window_bounds_the_pairs_of_prompts():
    # full: 2,001,000 pairs x 0.000512; sliding: 2000 x 100 pairs x 0.000512 = 102.4 < 2000 x 0.256
    found = roofline(SLIDING).breakdown(prefill=[(2000, 0)])["prefill_attention"]
    assert found == pytest.approx((1024.512 + 512) * 1e-9)


def test_window_bounds_the_context_of_chunks():
    # full: (5000 + 10) x 0.256; sliding: (100 + 10) x 0.256
    found = roofline(SLIDING).breakdown(prefill=[(10, 5000)])["prefill_attention"]
    assert found == pytest.approx((5010 + 110) * 0.256e-9)


def test_state_is_paid_per_sequence_whatever_its_context():
    found = roofline(RECURRENT)

    assert found.breakdown(decode=[10, 20])["state"] == found.breakdown(decode=[1000, 2000])["state"] == pytest.approx(
        2 * 11.264e-9)


def test_drafts_multiply_arithmetic_but_not_traffic():
    # a context token: 0.0023 ns of arithmetic a query, 0.32 ns of memory; 4 queries still wait for memory
    memory_bound = roofline(LATENT)
    assert memory_bound.breakdown(decode=[100], tokens_per_decode=4)["decode_attention"] == pytest.approx(32e-9)

    # at 1/1000 of the arithmetic 2.304 ns a query
    slow = replace(ACCELERATOR, dense_flops_per_s=replace(ACCELERATOR.dense_flops_per_s, bfloat16=1e12, float16=1e12))
    compute_bound = roofline(LATENT, accelerator=slow)
    assert compute_bound.breakdown(decode=[100], tokens_per_decode=4)["decode_attention"] == pytest.approx(921.6e-9)


def test_a_roofline_needs_a_deployment():
    with pytest.raises(ValueError, match=r"needs \[model\] and \[hardware\]"):
        Roofline(Roofline.Parameters(), None)


def test_a_share_above_one_is_refused():
    with pytest.raises(msgspec.ValidationError, match=r"<= 1\.0"):
        msgspec.convert({"mfu_prefill": 1.5}, Roofline.Parameters)


# ---- properties

MODELS = {
    "dense": roofline(), "mixture": roofline(MIXTURE), "latent": roofline(LATENT), "sliding": roofline(SLIDING),
    "recurrent": roofline(RECURRENT), "fp8": roofline(weight_dtype="fp8"), "tp2": roofline(tensor_parallel=2),
    "ep2": roofline(MIXTURE, data_parallel=2, expert_parallel=2),
    "v3": roofline(load_model("deepseek-v3"), node=NODE, tensor_parallel=8),
    "v3.2": roofline(load_model("deepseek-v3.2")),
}
PREFILL = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 50_000)), max_size=4)
DECODE = st.lists(st.integers(1, 50_000), max_size=8)
ANY_MODEL = st.sampled_from(sorted(MODELS))


@given(ANY_MODEL, PREFILL, DECODE, st.integers(1, 4))
def test_breakdown_sums_to_the_prediction(name, prefill, decode, drafts):
    if not prefill and not decode:
        return
    model = MODELS[name]

    terms = model.breakdown(prefill, decode, drafts)

    assert sum(terms.values()) == pytest.approx(model.predict(prefill, decode, drafts), rel=1e-12)
    assert min(terms.values()) >= 0.0


@given(ANY_MODEL, PREFILL, DECODE, st.integers(1, 50_000))
def test_one_more_sequence_is_never_faster(name, prefill, decode, context):
    if not prefill and not decode:
        return
    model = MODELS[name]

    assert model.predict(prefill, [*decode, context]) >= model.predict(prefill, decode)


@given(ANY_MODEL, PREFILL, DECODE, st.integers(1, 2000))
def test_longer_context_is_never_faster(name, prefill, decode, more):
    if not decode:
        return
    model = MODELS[name]

    assert model.predict(prefill, [decode[0] + more, *decode[1:]]) >= model.predict(prefill, decode)


@given(ANY_MODEL, PREFILL, DECODE, st.integers(0, 2000), st.integers(0, 2000))
def test_longer_prompt_is_never_faster(name, prefill, decode, tokens, context):
    if not prefill:
        return
    model = MODELS[name]
    longer = [(prefill[0][0] + tokens, prefill[0][1] + context), *prefill[1:]]

    assert model.predict(longer, decode) >= model.predict(prefill, decode)


@settings(max_examples=40)
@given(st.sampled_from([DENSE, MIXTURE, LATENT, SLIDING, RECURRENT]), PREFILL, DECODE,
       st.sampled_from(["memory", "compute", "link"]), st.floats(1.0, 10.0))
def test_better_hardware_is_never_slower(model, prefill, decode, what, factor):
    if not prefill and not decode:
        return
    better = {
        "memory": {"memory_bandwidth_bytes_per_s": 1e12 * factor},
        "compute": {"dense_flops_per_s": replace(ACCELERATOR.dense_flops_per_s, bfloat16=1e15 * factor)},
        "link": {"scaleup_bytes_per_s": 1e11 * factor},
    }[what]

    before = roofline(model, tensor_parallel=2).predict(prefill, decode)
    after = roofline(model, tensor_parallel=2, accelerator=replace(ACCELERATOR, **better)).predict(prefill, decode)

    assert after <= before * (1 + 1e-12)


# ---- against reality, with the defaults

def real(model, accelerator, node=None, **ways):
    return roofline(load_model(model), {}, accelerator=load_accelerator(accelerator),
                    node=load_node(node) if node else None, **ways)


def test_llama_8b_on_an_h100_decodes_at_the_speed_of_its_weights():
    # 15.0 GB of weights but the embedding / 3.35 TB/s = 4.5 ms at best; engines report 6 to 7.5 ms
    assert 4.5e-3 < real("llama-3.1-8b", "h100-sxm-80gb").predict(decode=[1024]) < 7.5e-3


def test_llama_8b_on_an_h100_prefills_at_the_speed_of_its_arithmetic():
    # 2048 x 2 x 7.0e9 FLOPs / 989 TFLOP/s = 29 ms at best; half of peak would be 58 ms
    assert 35e-3 < real("llama-3.1-8b", "h100-sxm-80gb").predict(prefill=[(2048, 0)]) < 90e-3


def test_llama_70b_gains_from_four_accelerators_but_less_than_fourfold():
    one = real("llama-3.1-70b", "h100-sxm-80gb").predict(decode=[1024])
    four = real("llama-3.1-70b", "h100-sxm-80gb", "dgx-h100", tensor_parallel=4).predict(decode=[1024])

    assert 2.5 < one / four < 4.0


@pytest.mark.parametrize("name", names("model"))
def test_every_model_takes_about_as_long_as_reading_its_active_weights(name):
    # one token on one MI300X, whatever the memory: active weights / 5.3 TB/s, and latencies of at most 0.1 ms a layer
    model = load_model(name)
    weights = rank_weights(deploy(model))
    chosen = model.moe.computed_per_token / model.moe.num_experts if model.moe else 0
    bytes_read = weights.matrices * weights.matrix_bytes + chosen * weights.expert_num_bytes + (
        weights.unquantized + weights.lm_head) * weights.unquantized_bytes

    found = real(name, "mi300x").predict(decode=[1])

    assert 0.4 * bytes_read / 5.3e12 < found < 3 * bytes_read / 5.3e12 + 1e-4 * model.num_layers + 1e-3


def test_newer_accelerators_are_faster():
    batch = {"prefill": [(2048, 0)], "decode": [2000] * 64}
    ordered = ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"]

    found = [real("llama-3.1-8b", name).predict(**batch) for name in ordered]

    assert found == sorted(found, reverse=True)


def test_a_format_that_the_accelerator_does_not_compute_is_told():
    # A100 has no fp8, H100 has; int4 weights are unpacked everywhere
    told = [Roofline(Roofline.Parameters(), Deployment(
        model=load_model("llama-3.1-8b"), accelerator=load_accelerator(name), weight_dtype=dtype)).warnings()
        for name, dtype in (("a100-sxm-80gb", "fp8"), ("h100-sxm-80gb", "fp8"), ("a100-sxm-80gb", "int4"))]
    assert told == [
        ["roofline: a100-sxm-80gb computes no fp8: products of fp8 weights are priced as bfloat16"], [], []]


@pytest.mark.parametrize("efficiency", [None, "shares"])
def test_weights_of_4_bits_with_activations_in_fp8_are_multiplied_in_fp8(efficiency):
    """Prompts take as long as in fp8; decodes read weights of 4 bits."""
    stored = Quantization(method="modelopt", weight_dtype="fp4", group_size=16, scale_bits=8)
    llama, b200 = load_model("llama-3.1-8b"), load_accelerator("b200-sxm-180gb")
    of_fp4, mixed, of_fp8 = (Roofline(Roofline.Parameters(efficiency=efficiency), Deployment(
        model=replace(llama, quantization=each), accelerator=b200)) for each in (
            stored, replace(stored, multiplied_as="fp8"), Quantization(method="fp8", weight_dtype="fp8")))

    def dense(priced, prefill=(), decode=()):
        return priced.breakdown(prefill, decode)["dense"]

    assert dense(mixed, [(16_384, 0)]) == pytest.approx(dense(of_fp8, [(16_384, 0)]), rel=0.1)
    assert dense(mixed, [(16_384, 0)]) > 1.5 * dense(of_fp4, [(16_384, 0)])
    assert dense(mixed, decode=[9]) < 0.7 * dense(of_fp8, decode=[9])
    assert any("activations in fp8" in note for note in mixed.warnings())
    assert not any("activations in" in note for note in of_fp4.warnings())


@pytest.mark.parametrize(("model", "accelerator", "efficiency", "told"), [
    ("llama-3.1-8b", "mi300x", None, "no table holds operators of mi300x nor of its generation"),
    ("deepseek-v3", "h200-sxm-141gb", None, "latent attention has laws of tables of single operators"),
    ("qwen3-next-80b-a3b", "h100-sxm-80gb", None, "linear attention has laws of tables of single operators"),
    ("deepseek-v3", "h200-sxm-141gb", "shares", None), ("llama-3.1-8b", "mi300x", "shares", None)])
def test_where_laws_are_silent_is_told(model, accelerator, efficiency, told):
    roofline = Roofline(Roofline.Parameters(efficiency=efficiency), Deployment(
        model=load_model(model), accelerator=load_accelerator(accelerator),
        parallelism=Parallelism(tensor_parallel=8)))

    assert [told in note for note in roofline.warnings()] == [True] if told else roofline.warnings() == []


@pytest.mark.skipif(not MEASURED.is_dir(), reason="needs ../shared/data/profiles/measured_vllm")
def test_unfitted_defaults_are_close_to_a_measured_engine():
    # vLLM 0.19, Llama-3.1-8B, RTX PRO 6000, 300 chat requests at 10/s, measured by the LLMServingSim project. Each
    # second gives mean iteration time = running / (output tokens/s); who was running is in the requests' times.
    model = real("llama-3.1-8b", "rtx-pro-6000-server")
    with gzip.open(MEASURED / "requests.jsonl.gz", "rt") as file:
        requests = [json.loads(line) for line in file]
    start = min(request["queued_ts"] for request in requests)

    ratios = []
    with (MEASURED / "timeseries.csv").open() as file:
        for second in csv.DictReader(file):
            contexts = contexts_at(start + float(second["t"]), requests)
            if len(contexts) >= 16 and float(second["gen_throughput"]) > 0:
                iteration_s = len(contexts) / float(second["gen_throughput"])
                prompt_tokens = int(float(second["prompt_throughput"]) * iteration_s)
                prefill = [(prompt_tokens, 0)] if prompt_tokens else []
                ratios.append(model.predict(prefill, contexts) / iteration_s)

    # measured once: median 0.91 over 60 seconds; by shares of peak 0.93
    assert len(ratios) > 50
    assert 0.75 < median(ratios) < 1.25


def contexts_at(instant, requests):
    """Return tokens in the KV cache of each request that is decoding, its output taken as evenly spread."""
    running = [each for each in requests if each["first_token_ts"] < instant < each["last_token_ts"]]
    return [int(each["input_toks"] + each["output_toks"] * progress(instant, each)) for each in running]


def progress(instant, request):
    return (instant - request["first_token_ts"]) / (request["last_token_ts"] - request["first_token_ts"])
