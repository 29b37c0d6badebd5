"""The roofline by laws of single operators: what they say, when they hold, how they add up."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node, names
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.roofline.laws import (
    DecodeLaw,
    ExpertLaw,
    PrefillLaw,
    ProductLaw,
    ReduceLaw,
    efficiency,
    generation_of,
    law_of,
)
from simulator.latency.roofline.model import Roofline

Parameters = Roofline.Parameters


def roofline(model="llama-3.1-8b", hardware="h100-sxm-80gb", node=None, weight_dtype=None, **keys):
    ways = Parallelism(**{name: keys.pop(name) for name in ("tensor_parallel", "data_parallel", "expert_parallel")
                          if name in keys})
    return Roofline(Parameters(**keys), Deployment(
        model=load_model(model), accelerator=load_accelerator(hardware), node=node and load_node(node),
        parallelism=ways, weight_dtype=weight_dtype))


# ---- laws by hand

def test_a_product_pads_its_tiles_and_has_a_floor():
    law = ProductLaw(compute_frac=0.5, memory_frac=0.5, floor_us=2.0, pad_rows=6, pad_columns=10, pad_depth=20,
                     least_flops_per_byte=10)

    # 2 x (4 + 6) x (90 + 10) x (180 + 20) = 400,000 FLOPs at 50 a ns; (90 x 180 + 2 x 4 x 270) x 2 bytes / 5 a ns
    expected = np.cbrt(8000.0 ** 3 + ((90 * 180 * 2 + 2 * 4 * 270) / 5) ** 3) + 2000
    assert law.ns(100.0, 10.0, 4, 90, 180, 2.0) == pytest.approx(expected)


def test_each_needed_expert_pads_its_rows():
    law = ExpertLaw(compute_frac=1.0, memory_frac=1.0, floor_us=0.0, pad_rows=8, activation_passes=2.0,
                    least_flops_per_byte=0)

    # 2 x (10 + 5 x 8) x 100 = 10,000 FLOPs; memory too fast to matter but for 30 bytes twice
    assert law.ns(1.0, 1e4, 10, 5, 100, 0.0, 30) == pytest.approx(10_000 + 2 * 30 / 1e4)


def test_attention_laws_by_hand():
    prefill = PrefillLaw(compute_frac=0.5, memory_frac=1.0, floor_us=1.0, tile_tokens=4)
    decode = DecodeLaw(compute_frac=1.0, memory_frac=0.5, floor_us=1.0, head_ns=3.0)

    assert prefill.ns(2.0, 1.0, 100, 25, 8, 10) == pytest.approx((100 + 4 * 25) * 8 + 1000)
    assert decode.ns(1.0, 1.0, 16, 10, 400) == pytest.approx(800 + 16 * 3 + 1000)


def test_all_reduces_between_measured_sizes_are_those_of_the_next_larger():
    law = ReduceLaw(floor_us=[4.0, 5.0, 6.0], link_frac=[0.5, 0.6, 0.7])

    assert [law.of(ranks) for ranks in (2, 3, 4, 8, 16)] == [
        (4000, 0.5), (5000, 0.6), (5000, 0.6), (6000, 0.7), (6000, 0.7)]


# ---- the file

def test_every_accelerator_has_a_generation_with_laws_of_every_operator():
    for name in names("hardware"):
        _, generation = generation_of(load_accelerator(name))
        for operator in ("products", "experts", "prefill", "decode"):
            assert law_of(generation, operator, "fp8").floor_us > 0.0, (name, operator)


@pytest.mark.parametrize(("accelerator", "generation"), [
    ("a40", "ampere"), ("h20-96gb", "hopper"), ("gb300", "blackwell"), ("rtx-5090", "blackwell_rtx"),
    ("mi300x", "any")])
def test_generations_are_told_apart(accelerator, generation):
    model = roofline(hardware=accelerator)

    assert model.efficiency == model.provenance()["efficiency"] == generation


def test_the_file_names_the_tables_it_was_derived_from():
    assert all(len(digest) == 64 for digest in efficiency().tables.values())
    assert {name.split("/")[0] for name in efficiency().tables} >= {"a100_sxm", "h100_sxm", "l40s", "b200_sxm"}


# ---- whole iterations

def test_the_head_is_its_product_alone():
    model, law = roofline(), generation_of(load_accelerator("h100-sxm-80gb"))[1].products["bfloat16"]

    found = model.breakdown(decode=[100] * 8)["head"]

    assert found * 1e9 == pytest.approx(law.ns(989.4e3, 3350.0, 8, 128256, 4096, 2.0), rel=1e-3)


@pytest.mark.parametrize("key", [
    "mfu_prefill", "mfu_decode", "mfu_attention", "bandwidth_efficiency", "kernel_latency_us", "attention_latency_us"])
def test_a_share_replaces_the_laws(key):
    given = {key: 0.5}

    assert roofline(**given).efficiency == "shares"
    assert roofline(**given).predict(decode=[9] * 4) == roofline(efficiency="shares", **given).predict(decode=[9] * 4)
    with pytest.raises(InputErrors, match=f'latency.{key}: efficiency = "laws", which have no such share'):
        roofline(efficiency="laws", **given)


def test_links_that_are_named_leave_the_laws_of_operators():
    ways = {"tensor_parallel": 2, "node": "dgx-h100"}
    named, plain = roofline(collective_latency_us=7.0, **ways), roofline(**ways)

    ours, theirs = (model.breakdown(decode=[100]) for model in (named, plain))
    floor_us = generation_of(load_accelerator("h100-sxm-80gb"))[1].all_reduce["scaleup"].floor_us[0]
    assert named.efficiency == "hopper"
    assert ours["latencies"] - theirs["latencies"] == pytest.approx(2 * 32 * (7.0 - floor_us) * 1e-6)


def test_norms_of_queries_and_keys_are_two_kernels_a_layer():
    model = load_model("qwen3-8b")
    bare = replace(model, attention=replace(model.attention, qk_norm="none"))

    h100 = load_accelerator("h100-sxm-80gb")
    latencies = [Roofline(Parameters(), Deployment(model=each, accelerator=h100)).breakdown(
        decode=[10])["latencies"] for each in (model, bare)]

    assert latencies[0] - latencies[1] == pytest.approx(36 * 2 * 3e-6)


MODELS = {
    "dense": roofline(), "mixture": roofline("mixtral-8x7b"), "latent": roofline("deepseek-v2-lite"),
    "window": roofline("gemma-3-4b"), "linear": roofline("qwen3-next-80b-a3b"), "fp8": roofline(weight_dtype="fp8"),
    "mxfp4": roofline("gpt-oss-120b", tensor_parallel=2, node="dgx-h100"),
    "spread": roofline("qwen3-30b-a3b", data_parallel=2, expert_parallel=2, node="dgx-h100")}
PREFILL = st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 50_000)), max_size=4)
DECODE = st.lists(st.integers(1, 50_000), max_size=8)


@settings(deadline=None)
@given(st.sampled_from(sorted(MODELS)), PREFILL, DECODE, st.tuples(st.integers(1, 9000), st.integers(0, 9000)))
def test_more_work_never_takes_less_and_terms_add_up(name, prefill, decode, more):
    model = MODELS[name]
    whole = model.predict([*prefill, more], decode)

    assert sum(model.breakdown([*prefill, more], decode).values()) == pytest.approx(whole, rel=1e-12)
    if prefill or decode:
        assert model.predict(prefill, decode) <= whole
    assert whole <= model.predict([*prefill, more], [*decode, 7])
