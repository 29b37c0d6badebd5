"""New tokens behind a cached prefix: between a decode of the same context and the dense prompt of the whole."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.model import Roofline
from support.goldens import GOLDENS
from support.operator_profiles import write_tables
from support.small_models import DENSE, SLIDING, deploy

TABLES = GOLDENS.parent / "data" / "profiles" / "aiconfigurator"
published = pytest.mark.skipif(not TABLES.is_dir(), reason="needs ../shared/data/profiles/aiconfigurator")


def deployment(model="llama-3.1-8b", hardware="h100-sxm-80gb", kv_cache_dtype="auto", **ways):
    return Deployment(model=load_model(model), accelerator=load_accelerator(hardware), kv_cache_dtype=kv_cache_dtype,
                      parallelism=Parallelism(**ways))


def roofline(*args, efficiency=None, **keys):
    return Roofline(Roofline.Parameters(efficiency=efficiency), deployment(*args, **keys))


def attention(model, *chunks, decode=()):
    terms = model.breakdown(list(chunks), list(decode))
    return 1e6 * (terms["prefill_attention"] + terms["decode_attention"])


# ---- the roofline

# Llama-3.1-8B on H100, 32,768 keys: 4.29 GB are read, 1,282 us at 3.35 TB/s. Of 512 new tokens 8.7 TFLOP, 8,790 us.
@pytest.mark.parametrize(("chunk", "least_us", "most_us"), [
    ((1, 32767), 1282, 2500), ((16, 32752), 1282, 2600), ((64, 32704), 1282, 2900), ((512, 32256), 8790, 20_000)])
def test_new_tokens_behind_a_long_prefix_read_it_once(chunk, least_us, most_us):
    assert least_us <= attention(roofline(), chunk) <= most_us


@pytest.mark.parametrize("hardware", names("hardware"))
@pytest.mark.parametrize(("model", "kv"), [
    ("llama-3.1-8b", "auto"), ("llama-3.1-8b", "fp8"), ("deepseek-v2-lite", "auto"), ("gemma-3-4b", "auto")])
def test_one_new_token_is_a_decode_on_every_accelerator(hardware, model, kv):
    for efficiency in ("laws", "shares"):
        priced = roofline(model, hardware, kv_cache_dtype=kv, efficiency=efficiency)
        for context in (500, 7000, 32_767, 120_000):
            one, decode = attention(priced, (1, context)), attention(priced, decode=[context + 1])
            assert decode / 2 <= one <= 1.5 * decode + 1e-9


@pytest.mark.parametrize("size", [512, 2048])
def test_chunks_of_a_prompt_take_little_more_than_all_of_it_at_once(size):
    model = roofline()
    chunks = sum(attention(model, (size, before)) for before in range(0, 32_768, size))

    assert 1.0 <= chunks / attention(model, (32_768, 0)) <= 1.1


def test_prompts_without_context_take_what_the_laws_were_fitted_to():
    law = roofline()
    costs = law.costs.full_attention
    for tokens in (1, 64, 1000, 8000):
        pairs = tokens * (tokens + 1) / 2
        arithmetic = costs.pair_ns * (pairs + costs.tile_tokens * tokens / 2)
        memory = (costs.prefill_kv_ns + costs.prefill_query_ns) * tokens
        assert attention(law, (tokens, 0)) == pytest.approx((costs.prefill_floor_ns + max(arithmetic, memory)) / 1e3)


def test_few_new_tokens_attend_to_latents_and_many_expand_them():
    model = roofline("deepseek-v2-lite")
    costs, beside = model.costs.full_attention, model.costs.other_attention[-1]

    def by_hand(new, others_ns):
        return (max(costs.context_flops_ns * (30_000 + new) + others_ns, costs.context_kv_ns * (30_000 + new))
                + beside.sequence_ns + beside.prefill_query_ns * (new - 1) + beside.decode_floor_ns
                + beside.prefill_floor_ns * min((new - 1) / 16, 1))

    # the last token is a decode; of the others, one attends to 30,001 tokens
    assert attention(model, (2, 30_000)) * 1e3 == pytest.approx(by_hand(2, costs.latent_pair_ns * 30_001))
    pairs = 2000 * 30_000 + 2000 * 2001 / 2 - 32_000
    assert attention(model, (2000, 30_000)) * 1e3 == pytest.approx(
        by_hand(2000, costs.pair_ns * pairs + costs.expand_ns * 30_000))


KINDS = {
    "grouped": roofline(), "fp8 cache": roofline(kv_cache_dtype="fp8"), "latent": roofline("deepseek-v2-lite"),
    "window": roofline("gemma-3-4b"), "sparse": roofline("deepseek-v3.2", tensor_parallel=8),
    "recurrent": roofline("qwen3-next-80b-a3b"), "ada": roofline(hardware="rtx-4090"),
    "h20": roofline(hardware="h20-96gb"), "shares": roofline(efficiency="shares"),
    "spread": roofline("qwen3-30b-a3b", tensor_parallel=2)}


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 4000), st.integers(0, 100_000), st.integers(1, 3000),
       st.integers(1, 3000))
def test_between_a_decode_and_the_dense_prompt_and_more_of_either_never_takes_less(kind, new, cached, more, before):
    model = KINDS[kind]
    found = attention(model, (new, cached))

    assert found <= attention(model, (new + more, cached)) * (1 + 1e-12)
    assert found <= attention(model, (new, cached + before)) * (1 + 1e-12)
    assert model.predict([(new, cached)]) <= model.predict([(new + cached, 0)]) * (1 + 1e-12)
    if kind not in ("latent", "sparse"):        # there the dense prompt expands its keys among the products
        assert found <= attention(model, (new + cached, 0)) * (1 + 1e-12)


@pytest.mark.parametrize(("hardware", "is_told"), [
    ("h100-sxm-80gb", False), ("b200-sxm-180gb", False), ("a100-sxm-80gb", True), ("rtx-4090", True),
    ("rtx-5090", True)])
def test_what_is_not_split_among_cores_is_told(hardware, is_told):
    model = roofline(hardware=hardware)

    for chunk in ((2000, 8000), (16, 100), (5000, 0)):
        model.predict([chunk])
    assert not any("FlashAttention 2" in note for note in model.warnings())
    model.predict([(16, 8000)])
    assert any("FlashAttention 2" in note for note in model.warnings()) is is_told


def test_that_latents_are_not_expanded_is_told():
    model = roofline("deepseek-v2-lite")

    model.predict([(2000, 8000)])
    assert not any("expand" in note for note in model.warnings())
    model.predict([(2, 8000)])
    assert any("vLLM expands them from two tokens on" in note for note in model.warnings())


# ---- operators

@pytest.fixture
def operators(tmp_path):
    def build(model=DENSE, **tables):
        path = write_tables(tmp_path / "tables", **tables)
        return Operators(Operators.Parameters(path=str(path), cache_directory=str(tmp_path)), deploy(model))
    return build


def in_ns(model, *chunks):
    return 1e9 * model.breakdown(list(chunks))["prefill_attention"]


def test_one_new_token_is_a_decode_in_tables(operators):
    # By difference 2 layers take 2 x (257^2 - 256^2) = 1,026 ns; a decode of 257 tokens 2 x 1,257, two 2 x 1,514
    assert in_ns(operators(), (1, 256)) == pytest.approx(2 * 1257)
    assert in_ns(operators(), (1, 256), (1, 256)) == pytest.approx(2 * (1000 + 2 * 257))


def test_many_new_tokens_take_what_the_prompt_takes_beyond_its_prefix(operators):
    assert in_ns(operators(), (64, 192)) == pytest.approx(2 * (256 ** 2 - 192 ** 2))


def test_no_chunk_takes_more_than_the_whole_prompt(operators):
    # Of 4 tokens 2 x 16 ns, where a decode takes 2 x 1,004
    assert in_ns(operators(), (1, 3)) == pytest.approx(2 * 16)


def test_a_window_bounds_what_few_new_tokens_read(operators):
    # One layer reads 1,001 tokens, one the last 100
    assert in_ns(operators(SLIDING), (1, 1000)) == pytest.approx(1000 + 1001 + 1000 + 100, rel=1e-3)


@pytest.mark.ci
@published
@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-32b"])
def test_no_chunk_behind_a_long_prefix_is_faster_than_memory(model, tmp_path):
    priced = Operators(Operators.Parameters(path=str(TABLES / "h100_sxm"), cache_directory=str(tmp_path)),
                       deployment(model))
    facts, bandwidth = load_model(model), load_accelerator("h100-sxm-80gb").memory_bandwidth_bytes_per_s
    for context in (8000, 32_000, 100_000):
        least = context * facts.kv_elements_per_token * 2 / bandwidth
        found = [priced.breakdown([(new, context)])["prefill_attention"] for new in (1, 4, 16, 64, 256, 1024)]
        assert least <= found[0] <= 3 * priced.breakdown(decode=[context + 1])["decode_attention"]
        assert found == sorted(found)
