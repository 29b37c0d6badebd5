"""What drafters hold, by hand and as published."""
import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import of_draft_model, of_head, of_medusa_heads, of_mtp_modules
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from support.parameters import mtp_parameters

H100 = load_accelerator("h100-sxm-80gb")


def deploy(name, tensor_parallel=1, **keys):
    return Deployment(model=load_model(name), accelerator=H100,
                      parallelism=Parallelism(tensor_parallel=tensor_parallel), **keys)


def test_an_eagle_3_head_has_its_published_size():
    # Llama-3.1-8B, in 16 bits: queries, keys and values of 2 x 4096 to 4096 + 2 x 1024, their output 4096 x 4096, an
    # MLP of 3 x 4096 x 14,336, 3 x 4096 to 4096, 4096 to 32,000 words and 2 norms: 811 MiB, as published.
    count = 8192 * 6144 + 4096**2 + 3 * 4096 * 14_336 + 3 * 4096**2 + 4096 * 32_000 + 2 * 4096
    found = of_head(deploy("llama-3.1-8b"), "eagle3")
    assert found.weights_bytes == 2 * count
    assert found.weights_bytes / 2**20 == pytest.approx(810, abs=1)
    assert found.kv_bytes_per_token == 2 * 2 * 8 * 128          # keys and values of 8 heads of 128


def test_an_eagle_head_is_a_layer_and_a_projection():
    # A layer of 4096 x (4096 + 2 x 1024) + 4096 x 4096 + 3 x 4096 x 14,336 and 2 norms, and 2 x 4096 to 4096.
    found = of_head(deploy("llama-3.1-8b"), "eagle")
    assert found.weights_bytes == 2 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14_336 + 2 * 4096 + 2 * 4096**2)


def test_heads_of_medusa_are_a_linear_layer_and_an_output_head_each():
    found = of_medusa_heads(deploy("llama-3.1-8b", 2), 5)
    assert (found.weights_bytes, found.kv_bytes_per_token) == (5 * 2 * 4096 * (4096 + 128_256 // 2), 0)


def test_ranks_share_all_but_the_projection():
    whole, half = (of_head(deploy("llama-3.1-8b", ranks), "eagle") for ranks in (1, 2))
    beside = 2 * (2 * 4096**2 + 2 * 4096)
    assert half.weights_bytes - beside == (whole.weights_bytes - beside) / 2
    assert half.kv_bytes_per_token == whole.kv_bytes_per_token / 2


def test_mtp_modules_are_those_of_the_model():
    model = load_model("deepseek-v3")
    found = of_mtp_modules(deploy("deepseek-v3", weight_dtype="bfloat16"))
    assert found.weights_bytes == 2 * mtp_parameters(model)
    assert found.kv_bytes_per_token == model.num_mtp_layers * 2 * 576       # a latent of 512 and 64 rotary dimensions


@pytest.mark.parametrize(("name", "modules", "heads", "kv_heads", "widths", "beside", "dense"), [
    ("step-3.7-flash", 3, 96, 8, (128, 128), 2 * 128 + 4096 * 96, 11_264),         # norms of q and k, a gate a head
    ("mimo-v2-flash", 1, 64, 8, (192, 128), 64, 16_384)])                          # sinks
def test_modules_of_mimo_and_step_have_a_window_and_a_dense_network(
        name, modules, heads, kv_heads, widths, beside, dense):
    # vLLM 0.33.0, mimo_v2_mtp.py and step3p5_mtp.py; queries, keys, values, outputs, network, 5 norms, projection
    found = of_mtp_modules(deploy(name, weight_dtype="bfloat16"))
    key, value = widths
    count = 4096 * ((heads + kv_heads) * key + kv_heads * value + heads * value) + beside
    count += 3 * 4096 * dense + 5 * 4096 + 2 * 4096**2
    assert found.weights_bytes == modules * 2 * count
    assert found.kv_bytes_per_token == modules * 2 * kv_heads * sum(widths)
    assert {mixer.window for mixer in found.mixers} == {512 if modules == 3 else 128}


def test_a_model_without_mtp_modules_is_refused():
    with pytest.raises(ValueError, match=r"llama-3\.1-8b has no MTP modules"):
        of_mtp_modules(deploy("llama-3.1-8b"))


def test_a_draft_model_holds_what_it_does_by_itself():
    draft = deploy("qwen3-0.6b")
    found = of_draft_model(draft)
    assert found.weights_bytes == pytest.approx(2 * draft.model.num_parameters, rel=1e-3)    # padding of the vocabulary
    assert found.kv_bytes_per_token == 28 * 2 * 2 * 8 * 128
