"""`step_roofline` worked out by hand on the round models.

Dense model of tests/support/small_models.py on 1e9 FLOP/us and 1e6 bytes/us: projections 24,576 weights, network two of
three matrices, 32,768. Per token 2 x 57,344 + 2 layers x 2 x 64 = 114,944 FLOPs; per pair 2 layers x (4 heads x 16 x 4
+ 5 x 4 heads) = 552 FLOPs. KV of a token 2 layers x 64 x 2 = 256 bytes, its activations 2 layers x 64 x 2 = 256 bytes.
"""
import msgspec
import pytest

from simulator.domain.facts import load_accelerator, load_model
from simulator.errors import InputErrors
from simulator.latency.blis.step_roofline import StepRoofline
from support.small_models import DENSE, MIXTURE, deploy


def us(model=DENSE, mfu_prefill=0.5, mfu_decode=0.25, tokens_per_decode=1, tensor_parallel=1, **batch):
    latency = StepRoofline(StepRoofline.Parameters(mfu_prefill=mfu_prefill, mfu_decode=mfu_decode),
                           deploy(model, tensor_parallel=tensor_parallel))
    return 1e6 * latency.predict(**batch, tokens_per_decode=tokens_per_decode)


def test_small_batch_waits_for_memory():
    # weights 114,688 bytes; KV of 103 tokens and 20 + 147 before them; activations of 103
    expected = 114_688 + 256 * (103 + 167) + 256 * 103

    assert us(prefill=[(100, 20)], decode=[50, 50, 50]) == pytest.approx(expected / 1e6)


def test_long_prompt_waits_for_arithmetic():
    # 2000 tokens, 2000 x (30 + 1999 / 2) pairs, half of peak; 10 decodes with 499 pairs each, a quarter of peak
    prompts = 2000 * 114_944 + 2_059_000 * 552
    decodes = 10 * 114_944 + 4990 * 552

    assert us(prefill=[(2000, 30)], decode=[500] * 10) == pytest.approx((prompts / 0.5 + decodes / 0.25) / 1e9)


def test_tensor_parallel_ranks_share_everything():
    batch = {"prefill": [(100, 20)], "decode": [50, 50, 50]}

    assert us(tensor_parallel=2, **batch) == pytest.approx(us(**batch) / 2)


@pytest.mark.parametrize(("tokens", "experts"), [(1, 2.0), (2, 3.5), (10_000, 8.0)])
def test_experts_are_read_as_the_tokens_need_them(tokens, experts):
    # BLIS gives experts to all layers: 2 x 2/3 x 6,144 weights for each; 8 (1 - 0.75^2) = 3.5
    weights = 24_576 + experts * 8_192
    expected = 2 * weights + 512 * tokens

    assert us(MIXTURE, mfu_prefill=1.0, mfu_decode=1.0, decode=[1] * tokens) == pytest.approx(
        max(expected / 1e6, tokens * (2 * (24_576 + 2 * 8_192) + 256) / 1e9))


def test_drafts_are_tokens_that_attend_to_the_context():
    slow = {"mfu_decode": 1e-6, "decode": [50]}

    # 49 pairs a token, far below peak
    assert us(tokens_per_decode=3, **slow) == pytest.approx(3 * (114_944 + 49 * 552) / 1e9 / 1e-6)


def test_shares_of_peak_are_known_for_some_accelerators_only():
    known, unknown = (deploy(load_model("llama-3.1-8b"), accelerator=load_accelerator(name))
                      for name in ("l40s", "b200-sxm-180gb"))
    StepRoofline(StepRoofline.Parameters(), known)

    with pytest.raises(InputErrors) as caught:
        StepRoofline(StepRoofline.Parameters(mfu_decode=0.3), unknown)
    assert caught.value.faults == ("latency.mfu_prefill: no default is known for b200-sxm-180gb; give one",)


def test_a_model_and_hardware_are_needed():
    with pytest.raises(ValueError, match="needs"):
        StepRoofline(StepRoofline.Parameters(), None)


def test_a_share_above_one_is_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"mfu_prefill": 1.5}, StepRoofline.Parameters)
