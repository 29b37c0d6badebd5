"""`blackbox`: three prices, and whose they are."""
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.facts import load_accelerator, load_model, names
from simulator.errors import InputErrors
from simulator.latency.blis.blackbox import Blackbox
from simulator.latency.blis.blackbox_sets import SETS
from support.small_models import DENSE, deploy

LLAMA, H100 = load_model("llama-3.1-8b"), load_accelerator("h100-sxm-80gb")


def blackbox(deployment=None, **parameters):
    return Blackbox(Blackbox.Parameters(**parameters), deployment)


def test_each_price_is_paid_for_what_it_names():
    # 5000 + 20 x (100 + 30) prompt tokens + 15 x 2 decode tokens; what is in the cache costs nothing
    model = blackbox(beta=(5000.0, 20.0, 15.0))

    assert model.predict(prefill=[(100, 0), (30, 900)], decode=[40, 60]) == pytest.approx(7630e-6, rel=1e-14)


def test_breakdown_adds_up_to_the_prediction():
    found = blackbox(beta=(5000.0, 20.0, 15.0)).breakdown(prefill=[(100, 0)], decode=[40, 60])

    assert found == pytest.approx({"iteration": 5000e-6, "prefill": 2000e-6, "decode": 30e-6})


def test_drafts_are_decode_tokens():
    assert blackbox(beta=(0.0, 0.0, 3.0)).predict(decode=[10], tokens_per_decode=4) == pytest.approx(12e-6)


@given(st.integers(0, 5000), st.integers(0, 300))
def test_duration_is_the_truncated_formula(prompt_tokens, decodes):
    if prompt_tokens + decodes == 0:
        return
    model = blackbox(beta=(5000.25, 17.5, 6.125))
    model.set_host(0.0, 1.0)

    # exact in binary: multiples of 1/8
    expected_us = int(5000.25 + 17.5 * prompt_tokens + 6.125 * decodes)
    prefill = [(prompt_tokens, 0)] if prompt_tokens else []
    assert model.predict_iteration_ns(prefill, [9] * decodes) == 1000 * expected_us


def test_the_set_of_the_deployment_is_the_default():
    model = blackbox(deploy(LLAMA, accelerator=H100, tensor_parallel=2))

    # 6910.42 + 17.67 x 100 + 2.8377 x 1
    assert model.provenance()["coefficients"] == "llama-3.1-8b/h100/tp2"
    assert model.predict(prefill=[(100, 0)], decode=[1]) == pytest.approx(8680.315717e-6, rel=1e-9)
    assert model.warnings() == []


def test_a_set_used_elsewhere_is_warned_of():
    model = blackbox(deploy(LLAMA, accelerator=H100), coefficients="phi-4/a100/tp2")

    assert [warning.split("fitted on ")[1] for warning in model.warnings()] == [
        "accelerator a100-sxm-80gb, a100-pcie-80gb, not h100-sxm-80gb", "model phi-4, not llama-3.1-8b",
        "tensor_parallel 2, not 1"]


@pytest.mark.parametrize("deployment", [
    None, deploy(DENSE), deploy(LLAMA, accelerator=H100, weight_dtype="fp8"),
    deploy(LLAMA, accelerator=H100, pipeline_parallel=2)])
def test_a_deployment_without_a_set_has_to_name_one(deployment):
    with pytest.raises(InputErrors, match="no published set fits the deployment; name one or give beta"):
        blackbox(deployment)


def test_own_coefficients_need_no_model_and_no_hardware():
    model = blackbox(beta=(1.0, 2.0, 3.0), alpha=(1000.0, 2.5, 50.0))

    assert model.host_terms() == {"queue_base_us": 1000.0, "queue_per_prompt_token_us": 2.5, "output_token_us": 50.0}
    assert (model.warnings(), model.provenance()["coefficients"]) == ([], "given")


def test_every_set_is_of_a_model_and_accelerators_known_here():
    assert {model for fit in SETS.values() for model in fit.models} <= set(names("model"))
    assert {each for fit in SETS.values() for each in fit.accelerators} <= set(names("hardware"))
    assert all(len(fit.beta) == len(fit.alpha) == 3 and min(fit.beta + fit.alpha) >= 0.0 for fit in SETS.values())


@pytest.mark.parametrize("given", [{"beta": [1.0, 2.0]}, {"beta": [1.0, 2.0, -3.0]}, {"alpha": [1.0] * 4}])
def test_coefficients_out_of_range_are_refused(given):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Blackbox.Parameters)
