"""Parts of layers that a checkpoint leaves in 16 bit: what they weigh, and in which format they are priced."""
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.model_spec import Quantization, Unquantized
from simulator.domain.rank_weights import layer_bytes, rank_weights
from simulator.latency.roofline.model import Roofline
from support.small_models import DENSE, MIXTURE, deploy


def left(model=DENSE, **parts):
    return replace(model, quantization=Quantization(method="fp8", weight_dtype="fp8", unquantized=Unquantized(**parts)))


def test_405b_in_fp8_keeps_attention_and_two_networks_in_16_bit():
    deployment = deploy(load_model("llama-3.1-405b-fp8"), accelerator=load_accelerator("h100-sxm-80gb"),
                        tensor_parallel=8)

    # 126 x 570,425,344 of attention and 2 x 2,617,245,696 of networks x 2, 124 networks x 1, the vocabulary's 4.2e9 x 2
    assert rank_weights(deployment).num_bytes == pytest.approx(
        (126 * 570_425_344 * 2 + 2_617_245_696 * (124 + 4) + 128_256 * 16_384 * 4) / 8, rel=1e-3)
    assert deployment.format_notes() == ["mlp of 2 of 126 layers stays in bfloat16, and is priced as fp8 in all"]


@pytest.mark.parametrize(("parts", "more"), [
    ({"attention": "all"}, 2 * 12_288), ({"mlp": (1,)}, 24_576),
    ({"attention": (0,), "mlp": (0, 1)}, 12_288 + 2 * 24_576)])
def test_what_stays_takes_a_byte_more_a_weight(parts, more):
    plain, kept = deploy(left()), deploy(left(**parts))

    assert rank_weights(kept).num_bytes - rank_weights(plain).num_bytes == pytest.approx(more)
    assert sum(layer_bytes(kept, i) - layer_bytes(plain, i) for i in range(2)) == pytest.approx(more)


def test_stages_hold_their_own_layers():
    deployment = deploy(left(mlp=(1,)), pipeline_parallel=2)

    assert rank_weights(deployment, range(1)).matrix_bytes == 1
    assert rank_weights(deployment, range(1, 2)).matrix_bytes == pytest.approx(1 + 24_576 / 36_864)


def test_experts_stay_too():
    # layer 1 has 8 experts of 6,144 weights
    plain, kept = deploy(left(MIXTURE)), deploy(left(MIXTURE, experts=(1,)))

    assert rank_weights(kept).num_bytes - rank_weights(plain).num_bytes == 8 * 6144
    assert rank_weights(deploy(left(MIXTURE, experts=(0,)))).num_bytes == rank_weights(plain).num_bytes


def test_another_dtype_that_is_asked_for_is_of_all_layers():
    assert rank_weights(deploy(left(attention="all"), weight_dtype="int4")).num_bytes == rank_weights(
        deploy(DENSE, weight_dtype="int4")).num_bytes


def test_a_prompt_takes_longer_where_attention_stays():
    h100 = load_accelerator("h100-sxm-80gb")
    whole = load_model("llama-3.1-70b-fp8")
    kept = replace(whole, quantization=replace(whole.quantization, unquantized=Unquantized(attention="all")))
    times = [Roofline(Roofline.Parameters(), deploy(each, accelerator=h100, tensor_parallel=2)).predict([(4096, 0)], [])
             for each in (whole, kept, load_model("llama-3.1-70b"))]

    assert times[0] < times[1] < times[2]
