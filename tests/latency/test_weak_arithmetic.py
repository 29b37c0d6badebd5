"""Padding where it was not fitted: accelerators weak in arithmetic and strong in memory, weights that are unpacked."""
import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.latency.roofline.laws import PADDED_FROM, ExpertLaw, ProductLaw, generation_of
from simulator.latency.roofline.model import Roofline

HARDWARE = names("hardware")
FORMATS = ("bfloat16", "fp8", "int8", "fp4", "int4")
LAW = ProductLaw(compute_frac=1.0, memory_frac=1.0, floor_us=0.0, pad_rows=10, pad_columns=100, pad_depth=0,
                 least_flops_per_byte=100)


def decode(model, hardware, weights=None, **ways):
    """Return bytes of weights over bandwidth, and how long one decoding sequence takes: seconds."""
    accelerator = load_accelerator(hardware)
    deployment = Deployment(model=load_model(model), accelerator=accelerator, parallelism=Parallelism(**ways),
                            weight_dtype=weights)
    part = rank_weights(deployment)
    read = part.matrices * part.matrix_bytes + (part.unquantized + part.lm_head) * part.unquantized_bytes
    return (read / accelerator.memory_bandwidth_bytes_per_s,
            Roofline(Roofline.Parameters(), deployment).predict(decode=[512]))


@pytest.mark.parametrize("hardware", HARDWARE)
def test_one_decoding_sequence_reaches_half_the_bandwidth_in_each_format(hardware):
    for weights in FORMATS:                 # 71 GB in fp8, and so much that starting kernels does not count
        least, found = decode("llama-3.1-70b", hardware, weights)
        # Products in fp4 reached no more in the tables, Blackwell's: one row takes 2.1 to 2.6 times what reading takes.
        half = 0.35 if load_accelerator(hardware).compute_dtype(weights) == "fp4" else 0.5
        assert half <= least / found <= 1.0, weights


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-32b", "mixtral-8x7b"])      # of which 8 GB or more are read
def test_fewer_bits_are_never_slower(hardware, model):
    whole, half = (decode(model, hardware, weights)[1] for weights in ("bfloat16", "fp8"))

    assert half <= whole


def test_fp8_on_an_h20_takes_about_half_of_bfloat16():
    # Two cards, 16.8 GB each in fp8: 4.2 ms at 4 TB/s. A user's server: 16 and 30 ms (vllm 17852, load not told).
    half, whole = (decode(model, "h20-96gb", tensor_parallel=2)[1] for model in ("qwen3-32b-fp8", "qwen3-32b"))

    assert 5.5e-3 <= half <= 9e-3
    assert 0.45 <= half / whole <= 0.65


def test_padding_counts_in_full_as_far_down_as_it_is_known():
    # 2 x (1 + 10) x (100 + 100) x 50 FLOPs; idle rows 2 x 10 x 200 x 50; memory too fast to count
    assert LAW.computed(100.0, 1.0, 10_000, 220_000, 200_000) == 220_000
    assert LAW.computed(PADDED_FROM * 100.0, 1.0, 10_000, 220_000, 200_000) == 220_000


def test_beyond_that_it_fades_to_what_the_model_asks_for():
    # A tenth of what is known: columns 2 x 1 x 100 x 50 at a tenth, idle rows at a hundredth
    peak = PADDED_FROM * 10.0

    assert LAW.computed(peak, 1.0, 10_000, 220_000, 200_000) == pytest.approx(10_000 + 1000 + 2000)


def test_experts_fade_likewise():
    law = ExpertLaw(compute_frac=1.0, memory_frac=1.0, floor_us=0.0, pad_rows=8, activation_passes=0.0,
                    least_flops_per_byte=100)

    # 10 rows and 5 experts x 8 idle ones x 2 x 100 FLOPs at 69 a ns, of which 690 would be known: a hundredth
    assert law.ns(PADDED_FROM * 100, 10.0, 10, 5, 100, 0.0, 0.0) * PADDED_FROM * 100 == pytest.approx(2000 + 80)


@pytest.mark.parametrize(("hardware", "least"), [("h100-sxm-80gb", 412), ("l40s", 848), ("b200-sxm-180gb", 580)])
def test_laws_know_how_much_arithmetic_the_fitted_accelerators_have(hardware, least):
    accelerator = load_accelerator(hardware)
    law = generation_of(accelerator)[1].products["fp8"]

    # H200: 1,979 TFLOPS over 4.8 TB/s. No accelerator that was fitted lies below.
    assert law.least_flops_per_byte == least
    assert accelerator.flops_per_s("fp8") / accelerator.memory_bandwidth_bytes_per_s >= least
