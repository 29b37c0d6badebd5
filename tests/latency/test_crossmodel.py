"""`crossmodel`: four coefficients, worked out by hand on the round models."""
import msgspec
import pytest

from simulator.domain.facts import load_accelerator, load_model
from simulator.latency.blis.crossmodel import Crossmodel
from support.small_models import DENSE, LATENT, MIXTURE, deploy

BETA = (100.0, 1e6, 20.0, 9000.0)
BATCH = {"prefill": [(100, 0)], "decode": [40, 60]}


def us(model=DENSE, batch=BATCH, beta=BETA, tokens_per_decode=1, **ways):
    latency = Crossmodel(Crossmodel.Parameters(beta=beta), deploy(model, **ways))
    return 1e6 * latency.predict(**batch, tokens_per_decode=tokens_per_decode)


def test_dense_model_pays_for_layers_and_decodes():
    # 100 x 2 layers + 1e6 x 2 tokens x (2 layers x 2 KV heads x 16) x 1e-6
    assert us() == pytest.approx(200 + 128)


def test_tokens_of_a_model_with_experts_pay_for_routing():
    assert us(MIXTURE) == pytest.approx(200 + 128 + 20 * 102)


def test_breakdown_adds_up_to_the_prediction():
    found = Crossmodel(Crossmodel.Parameters(beta=BETA), deploy(MIXTURE, tensor_parallel=2)).breakdown(**BATCH)

    assert found == pytest.approx({"layers": 200e-6, "decode": 64e-6, "experts": 2040e-6, "barrier": 9000e-6})


def test_tensor_parallel_ranks_share_the_kv_cache_and_wait():
    assert us(tensor_parallel=2) == pytest.approx(200 + 128 / 2 + 9000)


def test_latents_are_as_wide_as_what_they_hold():
    # 2 layers x (32 + 8) elements, half of them for each of key and value
    assert us(LATENT) == pytest.approx(200 + 2 * 40)


def test_drafts_are_decode_tokens():
    assert us(batch={"decode": [40]}, tokens_per_decode=3) == pytest.approx(200 + 3 * 64)


def test_a_dense_models_prompts_are_free():
    assert us(batch={"prefill": [(1, 0)]}) == us(batch={"prefill": [(8000, 500)]})


def test_published_set_on_a_fitted_model():
    deployment = deploy(load_model("mixtral-8x7b"), accelerator=load_accelerator("h100-sxm-80gb"), tensor_parallel=2)
    model = Crossmodel(Crossmodel.Parameters(), deployment)

    # 116.11 x 32 + 1226.868 x 1 x 32 x 8 x 128 / 2 x 1e-6 + 19.943 x 1 + 9445.157
    assert model.predict(decode=[500]) == pytest.approx((3715.52 + 20.10100531 + 19.943 + 9445.157) * 1e-6, rel=1e-9)
    assert model.warnings() == []
    assert model.host_terms() == {
        "queue_base_us": 13732.0, "queue_per_prompt_token_us": 0.0, "output_token_us": 860.6}


def test_other_models_and_accelerators_are_warned_of():
    warnings = Crossmodel(Crossmodel.Parameters(), deploy()).warnings()

    assert ["accelerator" in warnings[0], "model llama-2-7b" in warnings[1], len(warnings)] == [True, True, 2]


def test_a_model_and_hardware_are_needed():
    with pytest.raises(ValueError, match="needs"):
        Crossmodel(Crossmodel.Parameters(beta=BETA), None)


def test_coefficients_come_in_fours():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"beta": [1.0, 2.0, 3.0]}, Crossmodel.Parameters)
